// Who reaches a node's port without knowing its token, which members of its job alone are told.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <string>

#include "tests/transport/checks.hpp"

namespace troupe::transport::testing {
namespace {

constexpr std::size_t kLarge = 1 << 20;  // Offered, not sent along.
constexpr int kNever = 500;
/// Where the token stands in an address: after its name, the process and two version numbers.
constexpr std::size_t kTokenAt = 8 + 8 + 2 * 4;

std::unique_ptr<TestNode> node(Peer self, const std::string& tls) {
  TransportOptions options;
  options.self = self;
  options.ucx.tls = tls;
  options.ucx.net_devices = "lo";
  auto transport = create_transport("ucx", options);
  REQUIRE(transport.ok());
  return make_local_node(std::move(transport).value());
}

/// What node 0 gets of a small and a large message of node 1, which it connects to later.
std::pair<Outcome, Outcome> heard_of(TestNode& one, TestNode& zero,
                                     const std::vector<std::byte>& address) {
  REQUIRE(one.connect(0, address).ok);
  one.send(0, tag(1), 100, 7);
  one.send(0, tag(2), kLarge, 8);
  REQUIRE(zero.connect(1, one.address()).ok);
  const int small = zero.receive(1, tag(1), 100), large = zero.receive(1, tag(2), kLarge);
  return {zero.wait(small, kNever), zero.wait(large, kNever)};
}

TEST_CASE("messages without the receiver's token are dropped", "[transport][errors]") {
  const std::string tls = GENERATE("tcp", "all");
  CAPTURE(tls);
  const auto zero = node(0, tls), stranger = node(1, tls), member = node(2, tls);
  auto address = zero->address();
  address[kTokenAt] ^= std::byte{1};
  const auto [small, large] = heard_of(*stranger, *zero, address);
  CHECK_FALSE(small.ok);
  CHECK_FALSE(large.ok);

  // The others do not notice.
  REQUIRE(member->connect(0, zero->address()).ok);
  REQUIRE(zero->connect(2, member->address()).ok);
  const int receive = zero->receive(2, tag(1), kLarge);
  member->send(0, tag(1), kLarge, 9);
  check_received(*zero, receive, 9, kLarge);
}

TEST_CASE("with the token the same messages arrive", "[transport]") {
  const std::string tls = GENERATE("tcp", "all");
  CAPTURE(tls);
  const auto zero = node(0, tls), member = node(1, tls);
  const auto [small, large] = heard_of(*member, *zero, zero->address());
  CHECK(small.ok);
  CHECK(large.ok);
}

}  // namespace
}  // namespace troupe::transport::testing
