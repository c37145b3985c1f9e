#include "transport/ucx/address.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <string>

#include "transport/registry.hpp"

namespace troupe::transport {
namespace {

using Catch::Matchers::ContainsSubstring;

UcxAddress sample() {
  return {0x1234567890ABCDEF,
          1,
          13,
          {8, 9},
          {5, 10, 11, 6, 7},
          {std::byte{1}, std::byte{2}, std::byte{3}}};
}

TEST_CASE("an address survives its encoding", "[transport]") {
  const auto decoded = decode_ucx_address(4, encode(sample()), 1, 13);
  REQUIRE(decoded.ok());
  const auto& address = decoded.value();
  CHECK(address.process == 0x1234567890ABCDEF);
  CHECK(address.token == AccessToken{8, 9});
  CHECK(address.identity.machine == 5);
  CHECK(address.identity.process_space == 10);
  CHECK(address.identity.network_space == 11);
  CHECK(address.identity.started == 6);
  CHECK(address.identity.process_id == 7);
  CHECK(address.worker == sample().worker);
}

TEST_CASE("no two processes show the same token", "[transport]") {
  CHECK(make_access_token() != make_access_token());
}

TEST_CASE("an address that is cut off or foreign is refused", "[transport][errors]") {
  const auto bytes = encode(sample());
  for (std::size_t size = 0; size + 3 <= bytes.size(); ++size) {
    const auto cut = decode_ucx_address(4, std::span(bytes).first(size), 1, 13);
    REQUIRE_FALSE(cut.ok());
    CHECK(cut.error().code == Errc::invalid_argument);
  }
  auto foreign = bytes;
  foreign[0] = std::byte{'X'};
  CHECK_FALSE(decode_ucx_address(4, foreign, 1, 13).ok());
}

TEST_CASE("peers of another UCX release are refused, both releases named", "[transport][errors]") {
  const auto other = decode_ucx_address(4, encode(sample()), 1, 22);
  REQUIRE_FALSE(other.ok());
  CHECK_THAT(other.error().message, ContainsSubstring("1.13") && ContainsSubstring("1.22"));
}

TEST_CASE("what keeps two nodes of one machine from sharing memory is remarked on", "[transport]") {
  const auto made = [](const std::string& tls) {
    TransportOptions options;
    options.self = 0;
    options.ucx.tls = tls;
    options.ucx.net_devices = "lo";
    auto transport = create_transport("ucx", options);
    REQUIRE(transport.ok());
    return std::move(transport).value();
  };
  const auto remark = [&](const std::string& tls, auto change) {
    const auto transport = made(tls);
    const auto own = transport->address();
    std::uint32_t release[2];  // Of UCX; where they stand see address.hpp.
    std::memcpy(release, own.data() + 16, sizeof release);
    auto other = decode_ucx_address(1, own, release[0], release[1]);
    REQUIRE(other.ok());
    change(other.value().identity);
    return transport->remark_on(transport->address(), encode(other.value()));
  };
  const auto nothing = [](ProcessIdentity&) {};
  const auto other_network = [](ProcessIdentity& identity) { ++identity.network_space; };
  CHECK(remark("all", nothing).empty());
  CHECK_THAT(remark("all", other_network), ContainsSubstring("network namespaces of their own"));
  CHECK_THAT(remark("all", [](ProcessIdentity& identity) { ++identity.process_space; }),
             ContainsSubstring("process ids of their own"));
  CHECK(remark("all", [](ProcessIdentity& identity) { ++identity.machine; }).empty());
  CHECK(remark("tcp", other_network).empty());  // As the user wants it.
  CHECK(made("all")->remark_on({}, {}).empty());
}

}  // namespace
}  // namespace troupe::transport
