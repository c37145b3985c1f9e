#include "scheduler/cost/nccl_call.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using Links = std::array<double, 3>;  // Inside a device, a node, between nodes.

/// `most` holders on all nodes but one, which has `least`.
CallShape shape_of(std::int64_t holders, std::int64_t nodes, std::int64_t most,
                   std::int64_t least) {
  return {holders, nodes, most, least};
}

TEST_CASE("a ring sends what is least, a tree twice the elements in fewer steps", "[scheduler]") {
  // Two holders on each of two nodes. A ring's six steps move a quarter of 12 elements each, off
  // the node from each of its holders in turn: half of 18. Four steps lead off a node.
  const CallShape even = shape_of(4, 2, 2, 2);
  const CallTraffic ring = call_traffic(CallWay::ring, even, 12);
  CHECK(ring.elements == Links{0, 9, 9});
  CHECK(ring.steps == Links{0, 2, 4});
  // A tree of two nodes is one step high, which is taken up and down; so is that along a node.
  const CallTraffic tree = call_traffic(CallWay::tree, even, 12);
  CHECK(tree.elements == Links{0, 12, 12});
  CHECK(tree.steps == Links{0, 2, 2});
  // In rank order three elements go to two holders elsewhere and one here, and as many sums.
  const CallTraffic direct = call_traffic(CallWay::direct, even, 12);
  CHECK(direct.elements == Links{0, 6, 12});
  CHECK(direct.steps == Links{0, 0, 2});
}

TEST_CASE("on one node no call leaves it", "[scheduler]") {
  const CallShape one = shape_of(4, 1, 4, 4);
  CHECK(call_traffic(CallWay::ring, one, 12).elements == Links{0, 18, 0});
  CHECK(call_traffic(CallWay::ring, one, 12).steps == Links{0, 6, 0});
  CHECK(call_traffic(CallWay::tree, one, 12).elements == Links{0, 24, 0});
  CHECK(call_traffic(CallWay::tree, one, 12).steps == Links{0, 6, 0});
  CHECK(call_traffic(CallWay::direct, one, 12).elements == Links{0, 18, 0});
  CHECK(call_traffic(CallWay::direct, one, 12).steps == Links{0, 2, 0});
}

TEST_CASE("a holder that is alone on its node sends all that leaves it", "[scheduler]") {
  // Two holders and one: of 16 elements that each sends, the lone one sends all off its node, and
  // the others half inside theirs. All four steps lead off a node.
  const CallTraffic ring = call_traffic(CallWay::ring, shape_of(3, 2, 2, 1), 12);
  CHECK(ring.elements == Links{0, 8, 16});
  CHECK(ring.steps == Links{0, 0, 4});
}

TEST_CASE("a call takes its bytes over the slowest link and all latencies", "[scheduler]") {
  CallTraffic traffic;
  traffic.elements = {0, 10, 6};
  traffic.steps = {0, 2, 3};
  // Of two bytes each: 20 bytes at 10 a millisecond, 12 at 2; 2 x 1 and 3 x 5 ms.
  const LinkSpeeds links{LinkSpeed{7, 0}, LinkSpeed{1, 1e-5}, LinkSpeed{5, 2e-6}};
  CHECK(moving_ms(traffic, 2, links) == Approx(6 + 17));
  CHECK(moving_ms(traffic, 2, {}) == 0);
}

TEST_CASE("in its own order NCCL takes the ring or the tree, in the chain's neither",
          "[scheduler]") {
  // Four nodes, 12 elements of a byte, a byte a millisecond. Ring: 18 bytes, six steps; a tree two
  // steps high: 24 bytes, four.
  const CallShape shape = shape_of(4, 4, 1, 1);
  const auto steps_at = [&](SumOrder order, double latency_ms) {
    const LinkSpeeds links{LinkSpeed{}, LinkSpeed{}, LinkSpeed{latency_ms, 1e-6}};
    return call_traffic(order, shape, 12, 1, links).steps;
  };
  CHECK(steps_at(SumOrder::nccl, 1) == Links{0, 0, 6});  // 24 ms, and 28.
  CHECK(steps_at(SumOrder::nccl, 3) == Links{0, 0, 6});  // 36 both.
  CHECK(steps_at(SumOrder::nccl, 4) == Links{0, 0, 4});  // 42, and 40.
  for (const double latency_ms : {1, 4})
    CHECK(steps_at(SumOrder::nccl_chain, latency_ms) == Links{0, 0, 2});
}

}  // namespace
}  // namespace troupe::scheduler
