// Two nodes that both reach the head, and each other no more, without an error: what becomes of
// them by what they say of their waits.

#include "tests/torch_catch.hpp"

#include <algorithm>
#include <array>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "actors/supervisor/supervisor_stalls.hpp"
#include "tests/actors/recovering_head.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

/// A message of the step that runs, and where it stands in the lists of both ends.
struct Sent {
  engine::AwaitedMessage message;
  std::int64_t sent_at = 0;
  std::int64_t awaited_at = 0;
};

/// A head whose nodes run step 2 after one of 200 ms, and are given up where they are silent for 2
/// s.
class LosingHead {
 public:
  explicit LosingHead(const std::function<void(job::Job&)>& edit = {})
      : recovering(9, [&](job::Job& job) {
          job.cluster.heartbeat_timeout_s = 2;
          if (edit) edit(job);
        }) {
    head.plan(0);
  }

  void finish_first_step() {
    pass(200ms);
    head.run_step(1);
    head.plan(1);
    step = 2;
  }

  void pass(std::chrono::milliseconds time) { head.pass(time, {0, 1, 2, 3}); }

  DeviceId device_of(std::size_t node) const {
    const auto& devices = head.seen[node].configurations.back().plan.devices;
    const auto own = std::find_if(devices.begin(), devices.end(), [node](const DeviceSlot& slot) {
      return slot.node == NodeId{node};
    });
    REQUIRE(own != devices.end());
    return DeviceId{own - devices.begin()};
  }

  /// The first thing that one node sends and another one waits for.
  Sent first_sent(std::size_t from, std::size_t to) const {
    constexpr std::array<std::pair<ActionKind, ActionKind>, 4> kPairs{
        {{ActionKind::send, ActionKind::receive},
         {ActionKind::send_gradient, ActionKind::receive_gradient},
         {ActionKind::reduce_send, ActionKind::reduce},
         {ActionKind::reduce, ActionKind::reduce_receive}}};
    const auto& sends = list_of(from);
    const auto& waits = list_of(to);
    for (std::size_t s = 0; s < sends.size(); ++s)
      for (std::size_t w = 0; w < waits.size(); ++w)
        if (sends[s].message == waits[w].message && sends[s].group == waits[w].group)
          for (const auto& [send, receive] : kPairs)
            if (sends[s].kind == send && waits[w].kind == receive) {
              Sent found{
                  {device_of(from)}, static_cast<std::int64_t>(s), static_cast<std::int64_t>(w)};
              found.message.sent_in.kind = send;
              found.message.sent_in.message = sends[s].message;
              found.message.sent_in.group = sends[s].group;
              return found;
            }
    FAIL("node " << from << " sends nothing to node " << to);
    return {};
  }

  /// A node says that its device has waited for so long at this place of its list.
  void tell(std::size_t node, std::int64_t next_action, double seconds,
            std::vector<engine::AwaitedMessage> awaited = {}, EpochNumber epoch = 1) {
    engine::LongWait wait{device_of(node), step, epoch, next_action, std::move(awaited), seconds};
    engine::LongWaits told;
    told.waits.push_back(std::move(wait));
    head.tell(NodeId{node}, told);
  }

  /// What one sends does not come to the other, both say.
  void lose(std::size_t from, std::size_t to, double seconds) {
    const Sent sent = first_sent(from, to);
    tell(from, sent.sent_at + 1, seconds);
    tell(to, sent.awaited_at, seconds, {sent.message});
  }

  /// Whether this node alone is gone, and the others have the next layout; none: nobody is.
  bool is_gone(std::optional<std::size_t> node) {
    pass(1s);
    for (std::size_t id = 0; id < 4; ++id)
      if (head.seen[id].configurations.size() != (node && id != *node ? 2u : 1u)) return false;
    return !head.ended;
  }

  RecoveringHead recovering;
  Head& head = recovering.head;
  std::int64_t step = 1;

 private:
  const std::vector<Action>& list_of(std::size_t node) const {
    return head.seen[node].plans.back().actions[device_of(node).index()];
  }
};

// Window: a way between two nodes drops everything in silence
TEST_CASE("of the ends of a silent way one goes, and is told what did not come",
          "[actors][recovery]") {
  LosingHead losing;
  Head& head = losing.head;
  losing.finish_first_step();
  const bool is_forward = GENERATE(true, false);
  // Whichever of them waits for the other: the costs are the same, and the higher number goes.
  losing.lose(is_forward ? 0 : 1, is_forward ? 1 : 0, 5);
  REQUIRE(losing.is_gone(1));
  REQUIRE(head.seen[1].stops.size() == 1);
  INFO(head.seen[1].stops[0]);
  CHECK(says(head.seen[1].stops[0],
             "goes on without this node: node 1 (host, pid 101) was lost: it answers, but its "
             "connections to nodes 0 broke: node "));
  CHECK(says(head.seen[1].stops[0],
             "(what it sent 5 s ago has not come, and neither of them was told of an error)"));
  losing.recovering.bring_up(2, {0, 2, 3});
  losing.recovering.run_step(2, 2, 2);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].kind == "lost");
  CHECK(head.recorder.events[0].detect_ms == 5600);  // From then on; others could explain it.
}

// Window: a way between two nodes drops everything in silence
TEST_CASE("of the ends of a silent way the one goes without which fewer copies are missing",
          "[actors][recovery]") {
  const auto promised = GENERATE(0, 1);
  LosingHead losing([&](job::Job& job) {
    job.cluster.fault_tolerance = promised;
    job.parallel.layout.pipelines[1] = {{3, 0, {{"vision", {}}, {"llm", LayerRange{0, 2}}}},
                                        {2, 0, {{"llm", LayerRange{2, 4}}}}};
  });
  losing.lose(3, 2, 30);
  CHECK(losing.is_gone(promised == 1 ? 2 : 3));
}

// Window: a way between two nodes drops everything in silence
TEST_CASE("of several silent ways the node goes at which most of them end", "[actors][recovery]") {
  LosingHead losing;
  losing.finish_first_step();
  const Sent to_2 = losing.first_sent(1, 2), to_3 = losing.first_sent(1, 3);
  losing.tell(1, std::max(to_2.sent_at, to_3.sent_at) + 1, 5);
  losing.tell(3, to_3.awaited_at, 2, {to_3.message});  // It needed that later.
  CHECK(losing.is_gone(std::nullopt));
  losing.tell(2, to_2.awaited_at, 5, {to_2.message});
  CHECK(losing.is_gone(1));
}

TEST_CASE("who is slow, or waits for others, is not taken for one that cannot be reached",
          "[actors][recovery]") {
  LosingHead losing;
  losing.finish_first_step();
  const Sent sent = losing.first_sent(0, 1);
  const auto awaits = [&] { losing.tell(1, sent.awaited_at, 50, {sent.message}); };
  SECTION("it computes, and says nothing") { awaits(); }
  SECTION("it has not come to what is awaited of it") {
    losing.tell(0, sent.sent_at, 50);
    awaits();
  }
  SECTION("it has not been for long that it could come") {
    losing.tell(0, sent.sent_at + 1, 3.9);
    awaits();
  }
  SECTION("it is no longer so") {
    losing.tell(0, sent.sent_at + 1, 50);
    losing.head.tell(NodeId{0}, engine::LongWaits{});
    awaits();
  }
  SECTION("it was so in a layout before") {
    losing.tell(0, sent.sent_at + 1, 50, {}, 0);
    awaits();
  }
  CHECK(losing.is_gone(std::nullopt));
}

/// A head that has lost node 0, and whose others copy state to where the next layout wants it. Node
/// 2 has the only encoder, and each half of the llm has two holders, of which node 1 is one.
struct CopyingHead {
  CopyingHead() {
    head.plan(0);
    recovering.lose(0);
    REQUIRE(layouts_of(2) == 2);
  }

  /// A node says that it has heard nothing of another one for so long.
  void tell(std::size_t node, std::size_t peer, double seconds, EpochNumber epoch = 2) {
    engine::LongWaits told;
    told.silent.push_back({NodeId{peer}, epoch, seconds});
    head.tell(NodeId{node}, told);
  }

  void pass(std::chrono::milliseconds time) { head.pass(time, {1, 2, 3}); }
  std::size_t layouts_of(std::size_t node) const { return head.seen[node].configurations.size(); }

  RecoveringHead recovering{9, [](job::Job& job) {
                              job.cluster.heartbeat_timeout_s = 2;
                              job.cluster.join_timeout_s = 60;
                            }};
  Head& head = recovering.head;
};

// Window: a way between two nodes drops everything in silence
TEST_CASE("of the ends of a way on which no state comes the one goes that is easier done without",
          "[actors][recovery]") {
  CopyingHead copying;
  Head& head = copying.head;
  const bool is_first = GENERATE(true, false);
  copying.tell(is_first ? 1 : 2, is_first ? 2 : 1, 4);
  copying.pass(1s);  // Long before the time is over in which a layout must come up.
  REQUIRE_FALSE(head.ended);
  REQUIRE(head.seen[1].stops.size() == 1);
  INFO(head.seen[1].stops[0]);
  CHECK(says(head.seen[1].stops[0], "it answers, but its connections to nodes 2 broke: node "));
  CHECK(says(head.seen[1].stops[0],
             "(nothing has come from it for 4 s while state is copied between them, and neither of "
             "them was told of an error)"));
  CHECK(copying.layouts_of(2) == 3);
  copying.recovering.bring_up(3, {2, 3});
  copying.recovering.run_step(1, 3, 2);
  CHECK(copying.recovering.recorded() == std::vector<std::int64_t>{1});
}

// Window: a way between two nodes drops everything in silence
TEST_CASE("with a way on which no state comes those are told that have long been silent",
          "[actors][recovery]") {
  CopyingHead copying;
  const bool is_heard_again = GENERATE(false, true);
  copying.tell(3, 1, 2);
  copying.pass(1s);
  CHECK(copying.layouts_of(2) == 2);
  if (is_heard_again) copying.head.tell(NodeId{3}, engine::LongWaits{});
  copying.tell(2, 1, 4);
  copying.pass(1s);
  REQUIRE(copying.head.seen[1].stops.size() == 1);
  CHECK(says(copying.head.seen[1].stops[0],
             is_heard_again ? "connections to nodes 2 broke" : "connections to nodes 2, 3 broke"));
}

TEST_CASE("who is not heard for a while, or was not in another layout, is not given up",
          "[actors][recovery]") {
  CopyingHead copying;
  SECTION("it is not heard for a while") { copying.tell(1, 2, 3.9); }
  SECTION("it was not heard in the layout before") { copying.tell(1, 2, 50, 1); }
  SECTION("the layout is up") {
    copying.recovering.bring_up(2, {1, 2, 3});
    copying.tell(1, 2, 50);
  }
  copying.pass(1s);
  CHECK(copying.layouts_of(2) == 2);
  CHECK_FALSE(copying.head.ended);
}

TEST_CASE("in the first step a message may be on its way for 30 s", "[actors][recovery]") {
  LosingHead losing;
  losing.lose(0, 1, 29);
  CHECK(losing.is_gone(std::nullopt));
  losing.lose(0, 1, 30);
  CHECK(losing.is_gone(1));
}

}  // namespace
}  // namespace troupe::actors
