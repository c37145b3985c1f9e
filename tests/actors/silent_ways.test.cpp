#include "actors/coordination/silent_ways.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <vector>

namespace troupe::actors {
namespace {

constexpr double kBound_s = 4;

Action action(ActionKind kind, int message) {
  Action made;
  made.kind = kind;
  made.message = MessageId{message};
  return made;
}

/// Devices 0 to 3 on nodes of their own, device 4 with device 3. Each sends first and receives
/// then: message 10 a + b goes from device a to device b, in the order of b.
struct Step {
  Step() {
    for (const int node : {0, 1, 2, 3, 3}) {
      const bool is_second = plan.devices.size() == 4;
      plan.devices.push_back({NodeId{node}, is_second ? 1 : 0});
    }
    iteration.step = 7;
    iteration.epoch_number = 2;
    for (int device = 0; device < 5; ++device) {
      auto& list = iteration.actions.emplace_back();
      for (const ActionKind kind : {ActionKind::send, ActionKind::receive})
        for (int other = 0; other < 5; ++other)
          if (other != device)
            list.push_back(
                action(kind, kind == ActionKind::send ? 10 * device + other : 10 * other + device));
    }
  }

  /// A device waits at this place of its list for what these send to it.
  engine::LongWait wait(int device, std::int64_t next_action, double seconds,
                        const std::vector<int>& senders = {}) const {
    engine::LongWait made{DeviceId{device}, 7, 2, next_action};
    for (const int sender : senders) {
      engine::AwaitedMessage message{DeviceId{sender}};
      message.sent_in = action(ActionKind::send, 10 * sender + device);
      made.awaited.push_back(message);
    }
    made.seconds = seconds;
    return made;
  }

  std::vector<SilentWay> ways(const std::vector<engine::LongWait>& waits) const {
    return silent_ways(plan, iteration, waits, kBound_s);
  }

  ParallelPlan plan;
  IterationPlan iteration;
};

SilentWay way(int from, int to, double seconds) { return {NodeId{from}, NodeId{to}, seconds}; }

const std::vector<SilentWay> kNone;

TEST_CASE("a message is lost that was sent before its sender began to wait", "[coordination]") {
  const Step step;
  // Device 1 waits behind all that it sends; for what does not matter.
  CHECK((step.ways({step.wait(0, 4, 5, {1}), step.wait(1, 8, 6)}) == std::vector{way(1, 0, 5)}));
  CHECK((step.ways({step.wait(0, 4, 5, {1}), step.wait(1, 5, 6, {2}), step.wait(2, 0, 9)}) ==
         std::vector{way(1, 0, 5)}));
  // Both wait for each other, and one has not sent yet what is awaited of it.
  CHECK(
      (step.ways({step.wait(0, 4, 5, {1}), step.wait(1, 0, 6, {0})}) == std::vector{way(0, 1, 5)}));
  // Or both have: the way is one.
  CHECK(
      (step.ways({step.wait(0, 4, 5, {1}), step.wait(1, 4, 6, {0})}) == std::vector{way(1, 0, 5)}));
  // Of several messages on it the one counts that was sent first.
  CHECK((step.ways({step.wait(0, 4, 7, {3, 4}), step.wait(3, 8, 5), step.wait(4, 8, 6)}) ==
         std::vector{way(3, 0, 6)}));
}

TEST_CASE("a message is on its way since its sender went on behind it, not since it is awaited",
          "[coordination]") {
  const Step step;
  CHECK((step.ways({step.wait(0, 4, 500, {1}), step.wait(1, 8, 3.9)}) == kNone));
  CHECK((step.ways({step.wait(0, 4, 3.9, {1}), step.wait(1, 8, 500)}) == kNone));
  CHECK((step.ways({step.wait(0, 4, 4, {1}), step.wait(1, 8, 4)}) == std::vector{way(1, 0, 4)}));
}

TEST_CASE("who computes, or waits for a third one before it can send, has lost nothing",
          "[coordination]") {
  const Step step;
  // Device 1 says nothing: it computes, however long.
  CHECK((step.ways({step.wait(0, 4, 500, {1})}) == kNone));
  // Device 1 waits for 2, and has not come to its message to 0, which stands first in its list.
  CHECK((step.ways({step.wait(0, 4, 500, {1}), step.wait(1, 0, 500, {2})}) == kNone));
  // A chain of four, in a ring: the way is silent whose message was sent.
  CHECK((step.ways({step.wait(0, 0, 5, {1}), step.wait(1, 0, 5, {2}), step.wait(2, 0, 5, {3}),
                    step.wait(3, 1, 5, {0})}) == kNone));
  CHECK((step.ways({step.wait(0, 0, 5, {1}), step.wait(1, 0, 5, {2}), step.wait(2, 1, 5, {3}),
                    step.wait(3, 4, 5, {0})}) == std::vector{way(3, 2, 5)}));
}

TEST_CASE("what was said of another step, or in another layout, is nothing", "[coordination]") {
  const Step step;
  auto other = step.wait(1, 8, 500);
  other.step = 6;
  CHECK((step.ways({step.wait(0, 4, 500, {1}), other}) == kNone));
  other.step = 7;
  other.epoch_number = 1;
  CHECK((step.ways({step.wait(0, 4, 500, {1}), other}) == kNone));
  auto waits = std::vector{step.wait(0, 4, 500, {1}), step.wait(1, 8, 500)};
  waits[0].step = 8;
  CHECK((step.ways(waits) == kNone));
}

TEST_CASE("nothing is lost between devices of one node", "[coordination]") {
  const Step step;
  CHECK((step.ways({step.wait(3, 4, 500, {4}), step.wait(4, 8, 500)}) == kNone));
}

TEST_CASE("of what is said of a way the longest silence counts, whichever end says so",
          "[coordination]") {
  const std::vector told{way(0, 1, 3), way(1, 0, 5), way(2, 2, 9), way(2, 1, 2), way(3, 1, 1.9)};
  CHECK((due_ways(told, kBound_s) == std::vector{way(1, 0, 5), way(2, 1, 2)}));
  CHECK((due_ways(std::vector{told[0], told[2], told[3]}, kBound_s) == kNone));
}

TEST_CASE("with a way that has long been silent those are told that are about to be",
          "[coordination]") {
  const Step step;
  // Node 2 has lost its network; 1 and 3 came to need it later than 0, and 3 only just now.
  const std::vector waits{step.wait(0, 4, 4, {2}), step.wait(1, 4, 2, {2}), step.wait(2, 4, 4, {3}),
                          step.wait(3, 4, 1.9, {2})};
  CHECK((step.ways(waits) == std::vector{way(2, 0, 4), way(2, 1, 2)}));
  CHECK((step.ways({waits[1], waits[2]}) == kNone));
}

}  // namespace
}  // namespace troupe::actors
