#include "transport/registry.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::transport {
namespace {

using Catch::Matchers::ContainsSubstring;

Error error_of(std::string_view name, const TransportOptions& options) {
  auto transport = create_transport(name, options);
  return transport.ok() ? Error{} : transport.error();
}

TransportOptions good() {
  TransportOptions options;
  options.self = 0;
  options.ucx.tls = "self,tcp";
  options.ucx.net_devices = "lo";
  return options;
}

TEST_CASE("an unknown backend is named together with the known ones", "[transport][errors]") {
  const auto error = error_of("pigeon", good());
  CHECK(error.code == Errc::not_found);
  CHECK_THAT(error.message, ContainsSubstring("'pigeon'"));
  CHECK_THAT(error.fix, ContainsSubstring("inproc, ucx"));
}

TEST_CASE("every listed backend can be made", "[transport]") {
  for (const auto name : transport_names()) {
    const auto transport = create_transport(name, good());
    REQUIRE(transport.ok());
    CHECK(transport.value()->self() == 0);
    CHECK(transport.value()->address() == transport.value()->address());
  }
}

TEST_CASE("options out of range are refused", "[transport][errors]") {
  auto options = good();
  options.self = -1;
  CHECK(error_of("inproc", options).code == Errc::invalid_argument);
  options = good();
  options.receives_max = Bytes{0};
  CHECK(error_of("inproc", options).code == Errc::invalid_argument);
  options = good();
  options.unexpected_max = Bytes{-1};
  CHECK(error_of("ucx", options).code == Errc::invalid_argument);
  options = good();
  options.ucx.keepalive = std::chrono::seconds(5);
  CHECK(error_of("ucx", options).code == Errc::invalid_argument);
  options = good();
  options.ucx.spin = std::chrono::microseconds(-1);
  CHECK(error_of("ucx", options).code == Errc::invalid_argument);
  options = good();
  options.ucx.connect_timeout = std::chrono::milliseconds(0);
  CHECK(error_of("ucx", options).code == Errc::invalid_argument);
}

TEST_CASE("transports or devices that UCX does not have are named", "[transport][errors]") {
  auto options = good();
  options.ucx.net_devices = "wormhole7";
  auto error = error_of("ucx", options);
  CHECK(error.code == Errc::invalid_argument);
  CHECK_THAT(error.message, ContainsSubstring("wormhole7"));
  CHECK_THAT(error.fix, ContainsSubstring("ucx_info -d"));
  options = good();
  options.ucx.tls = "self,tcp,carrier_pigeon";
  error = error_of("ucx", options);
  CHECK(error.code == Errc::invalid_argument);
  CHECK_THAT(error.message, ContainsSubstring("carrier_pigeon"));
  options.ucx.tls = "carrier_pigeon";
  CHECK_THAT(error_of("ucx", options).message, ContainsSubstring("carrier_pigeon"));
}

}  // namespace
}  // namespace troupe::transport
