#include "runtime/door/listening.hpp"

#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::door {
namespace {

using Catch::Matchers::ContainsSubstring;

const auto kSoon = [] { return std::chrono::steady_clock::now() + std::chrono::milliseconds(300); };

TEST_CASE("a socket listens at the port that it tells, and others connect", "[door]") {
  const auto listening = listen_at({"127.0.0.1", 0});
  REQUIRE(listening.ok());
  const auto port = port_of(listening.value());
  CHECK(port != 0);
  CHECK(connect_to({"127.0.0.1", port}, kSoon()).ok());
  CHECK(connect_to({"localhost", port}, kSoon()).ok());
}

TEST_CASE("why nobody can listen there is one of four reasons", "[door][errors]") {
  const auto taken = listen_at({"127.0.0.1", 0});
  REQUIRE(taken.ok());
  const auto port = port_of(taken.value());
  const std::pair<HostPort, const char*> cases[] = {
      {{"127.0.0.1", port}, "another program listens there"},
      {{"203.0.113.7", 0}, "no such address"},
      {{"no-such-host.invalid", 0}, "the host is unknown"},
  };
  for (const auto& [address, why] : cases) {
    const auto refused = listen_at(address);
    REQUIRE_FALSE(refused.ok());
    CHECK_THAT(refused.error().message, ContainsSubstring(why));
    CHECK(refused.error().where == "cluster.listen");
    CHECK_FALSE(refused.error().fix.empty());
  }
}

TEST_CASE("a port is free again while the ends of its connections linger", "[door]") {
  auto listening = listen_at({"127.0.0.1", 0});
  REQUIRE(listening.ok());
  const HostPort address{"127.0.0.1", port_of(listening.value())};
  {
    const auto client = connect_to(address, kSoon());
    REQUIRE(client.ok());
    REQUIRE(wait_for(listening.value(), /*write=*/false, kSoon()));
    Socket accepted(::accept(listening.value().get(), nullptr, nullptr));
    REQUIRE(accepted.get() >= 0);
    listening.value() = Socket();
    accepted = Socket();  // This side closes first, and stays in TIME-WAIT.
  }
  CHECK(listen_at(address).ok());
}

TEST_CASE("who cannot be reached is named with the system's reason", "[door][errors]") {
  auto gone = listen_at({"127.0.0.1", 0});
  REQUIRE(gone.ok());
  const HostPort address{"127.0.0.1", port_of(gone.value())};
  gone.value() = Socket();
  const auto refused = connect_to(address, kSoon());
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::transport_failed);
  CHECK_THAT(refused.error().message,
             ContainsSubstring("refused") && ContainsSubstring(address.text()));
}

}  // namespace
}  // namespace troupe::door
