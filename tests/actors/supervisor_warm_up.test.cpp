#include "actors/supervisor/supervisor_warm_up.hpp"

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <set>

#include "runtime/observe/job_status.hpp"
#include "scheduler/state/state_moves.hpp"
#include "tests/actors/members_fixture.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

/// What the one device of a node has, if it does what it is told: each layout must find there, or
/// bring, all that it wants.
class Kept {
 public:
  Kept(const engine::JobSetup& setup, NodeId node) : setup_(setup), device_{node, 0} {}

  void turn_over(const Configuration& layout) {
    const auto want =
        scheduler::place_state(layout.plan, setup_.parameters, setup_.job.train.dtype);
    std::set<ShardKey> wanted, comes;
    for (const Shard& shard : want)
      if (std::binary_search(shard.holders.begin(), shard.holders.end(), device_))
        wanted.insert(shard.key);
    for (const StateMove& move : layout.moves)
      if (move.to == device_) comes.insert(move.piece);
    std::erase_if(held_, [&](const ShardKey& key) { return !wanted.contains(key); });
    for (const ShardKey& key : wanted) CHECK((held_.contains(key) != comes.contains(key)));
    late_ = layout.arriving.empty() ? std::set<ShardKey>{} : comes;
    if (layout.arriving.empty()) held_.insert(comes.begin(), comes.end());
  }
  void decided() { held_.merge(late_); }

 private:
  const engine::JobSetup& setup_;
  DeviceSlot device_;
  std::set<ShardKey> held_, late_;
};

/// Node 1 was lost after a step, the others trained another one, and it joins anew.
struct Warming {
  explicit Warming(std::int64_t bytes, const std::function<void(job::Job&)>& edit = {})
      : members(
            [&](job::Job& job) {
              job.debug.warm_up_bytes = bytes;
              if (edit) edit(job);
            },
            60) {
    head.plan(0);
    members.lose(1);
    members.bring_up(2, {0, 2, 3});
    head.plan(0);
    head.join("another");
    head.ready(1);
    members.run_step(1, 2);
  }

  const Configuration& newest(std::size_t node = 1) const {
    return head.seen[node].configurations.back();
  }
  bool is_warming() const { return !newest().arriving.empty(); }

  /// All turn over to the newest layout and train a step on it.
  void next_step() {
    const EpochNumber epoch = newest().epoch_number;
    members.bring_up(epoch, {0, 1, 2, 3});
    ++step;
    head.plan(step - 1);
    members.run_step(step, epoch);
  }

  Members members;
  Head& head = members.head;
  std::int64_t step = 1;
};

TEST_CASE("who joins takes state over step by step before it works", "[actors][members]") {
  Warming warming(1);
  Head& head = warming.head;
  const ParallelPlan before = head.seen[2].configurations[1].plan;
  REQUIRE(warming.is_warming());
  std::set<Standby> warm;
  while (warming.is_warming()) {
    const Configuration& layout = warming.newest();
    CHECK((layout.plan.stages == before.stages));
    for (const Standby& standby : layout.arriving) {
      CHECK(std::binary_search(layout.plan.standbys.begin(), layout.plan.standbys.end(), standby));
      CHECK(warm.insert(standby).second);  // Once.
    }
    for (const StateMove& move : layout.moves) CHECK(move.from.node != NodeId{1});
    CHECK_FALSE(layout.moves.empty());
    const auto status =
        observe::read_status(warming.members.ask(ControlRequest::Kind::status)).value();
    CHECK(status.nodes[1].state == "warming up");
    CHECK((warming.newest(2).arriving == layout.arriving));
    warming.next_step();
  }
  CHECK(warm.size() > 2);
  const Configuration& last = warming.newest();
  CHECK_FALSE((last.plan.stages == before.stages));
  for (const StateMove& move : last.moves) CHECK(move.to.node != NodeId{1});
  const auto steps = warming.step;
  warming.next_step();
  CHECK(warming.newest().epoch_number == last.epoch_number);
  const auto& events = head.recorder.events;
  REQUIRE(events.size() == 2);
  CHECK(events[1].kind == "joined");
  CHECK(events[1].copy_bytes == 0);
  CHECK(events[1].warm_up_steps == steps - 1);
  CHECK(events[1].warm_up_bytes > 0);
  CHECK(events[1].step == steps + 1);
  CHECK(says(warming.members.log(), "node 1 takes state over while the others train, during "));
  CHECK(says(warming.members.log(), "had come during "));
  for (std::size_t i = 0; i < head.recorder.steps.size(); ++i)
    CHECK(head.recorder.steps[i]->metrics.step == static_cast<std::int64_t>(i) + 1);
}

TEST_CASE("who joins connects before it takes state over, and its event counts that",
          "[actors][members]") {
  Warming warming(1);
  Head& head = warming.head;
  REQUIRE(warming.is_warming());
  head.system.pass(100ms);
  const EpochNumber epoch = warming.newest().epoch_number;
  for (std::size_t id = 0; id < 4; ++id)
    head.tell(fetched_atom::value, NodeId{id}, epoch, id == 1 ? 40.0 : 15.0);
  for (std::size_t id = 0; id < 4; ++id) head.tell(applied_atom::value, NodeId{id}, epoch);
  head.plan(warming.step++);
  warming.members.run_step(warming.step, epoch);
  while (warming.is_warming()) warming.next_step();
  const auto ended = head.recorder.events.size();
  warming.next_step();
  REQUIRE(head.recorder.events.size() == ended + 1);
  const observe::RunEvent& event = head.recorder.events.back();
  CHECK(event.kind == "joined");
  CHECK(event.connect_ms == 40);
  CHECK(event.copy_ms == 0);
  CHECK(event.warm_up_ms == 60);  // The rest of what passed before.
}

// Window: another one joins
TEST_CASE("what a warm-up took is no part of a loss behind it", "[actors][members]") {
  Warming warming(1 << 30);
  Head& head = warming.head;
  REQUIRE(warming.is_warming());
  head.system.pass(100ms);
  const EpochNumber late = warming.newest().epoch_number;
  for (std::size_t id = 0; id < 4; ++id) head.tell(fetched_atom::value, NodeId{id}, late, 40.0);
  for (std::size_t id = 0; id < 4; ++id) head.tell(applied_atom::value, NodeId{id}, late);
  head.plan(warming.step++);
  warming.members.run_step(warming.step, late);
  REQUIRE_FALSE(warming.is_warming());
  head.system.pass(50ms);  // The layout that gives node 1 work comes up.
  warming.members.lose(0);
  const EpochNumber next = warming.newest().epoch_number;
  REQUIRE(next == late + 2);
  head.system.pass(5ms);
  for (std::size_t id = 1; id < 4; ++id) head.tell(fetched_atom::value, NodeId{id}, next, 5.0);
  for (std::size_t id = 1; id < 4; ++id) head.tell(applied_atom::value, NodeId{id}, next);
  const auto before = head.recorder.events.size();
  head.plan(warming.step++);
  warming.members.run_step(warming.step, next);
  REQUIRE(head.recorder.events.size() == before + 2);
  const observe::RunEvent& lost = head.recorder.events[before];
  const observe::RunEvent& joined = head.recorder.events[before + 1];
  CHECK(lost.kind == "lost");
  CHECK(lost.connect_ms == 5);
  CHECK(joined.kind == "joined");
  CHECK(joined.warm_up_ms == 60);
}

TEST_CASE("every layout finds what it wants, or brings it", "[actors][members][property]") {
  // One joins, and another while it takes state over; then one is lost.
  const auto rounds = GENERATE(range(0, 6));
  const auto later = GENERATE(1, 2, 4);
  const bool is_decided = GENERATE(false, true);
  Members members(
      [](job::Job& job) {
        job.debug.warm_up_bytes = 1;
        job.cluster.fault_tolerance = 1;
      },
      60);
  Head& head = members.head;
  // Half of the layers: a pipeline needs two nodes, and with each that comes all are cut anew.
  head.tell(templates_of(head.resources.setup, 4));
  head.plan(0);
  members.lose(0);
  members.lose(1);
  members.bring_up(3, {2, 3});
  head.plan(0);
  Kept kept(head.resources.setup, NodeId{1});
  head.join("another", 1);
  head.ready(1);
  members.run_step(1, 3);
  std::int64_t step = 1;
  std::vector<std::size_t> nodes{1, 2, 3};
  const auto& seen = head.seen[1].configurations;
  std::size_t told = seen.size() - 1;
  const auto turn_over = [&] {
    for (; told < seen.size(); ++told) kept.turn_over(seen[told]);
    members.bring_up(seen.back().epoch_number, nodes);
    head.plan(step);
  };
  const auto train = [&] {
    const EpochNumber epoch = seen.back().epoch_number;
    kept.decided();
    ++step;
    members.run_step(step, epoch);
  };
  for (int round = 0; round < rounds + later; ++round) {
    if (round == rounds) {
      head.join("one more", 0);
      head.ready(0);
    }
    turn_over();
    train();
    if (round >= rounds) nodes = {0, 1, 2, 3};
  }
  turn_over();
  const std::size_t devices = head.scheduler.begins.back().plan.devices.size();
  const EpochNumber epoch = seen.back().epoch_number;
  if (is_decided) {
    kept.decided();
    for (std::size_t device = 0; device < devices; ++device)
      head.prepared(device, step + 1, 1, 1, epoch);
  }
  members.lose(3);
  if (is_decided)
    for (std::size_t device = 0; device < devices; ++device) head.finished(device, step + 1, epoch);
  REQUIRE_FALSE(head.ended);
  REQUIRE(told < seen.size());
  for (; told < seen.size(); ++told) kept.turn_over(seen[told]);
}

TEST_CASE("all of it may come during one step", "[actors][members]") {
  Warming warming(1 << 30);
  REQUIRE(warming.is_warming());
  warming.next_step();
  CHECK_FALSE(warming.is_warming());
  CHECK(warming.newest().moves.empty());
}

TEST_CASE("nothing is planned ahead of a step during which state comes", "[actors][members]") {
  Warming warming(1);
  Head& head = warming.head;
  warming.members.bring_up(3, {0, 1, 2, 3});
  const auto asked = head.scheduler.asked;
  head.plan(1);
  CHECK(head.scheduler.asked == asked);
  warming.members.run_step(2, 3);
  CHECK(warming.newest().epoch_number == 4);
}

TEST_CASE("who gives late state may be silent for as long as a message of the step may take",
          "[actors][members]") {
  Warming warming(1, [](job::Job& job) { job.cluster.heartbeat_timeout_s = 2; });
  Head& head = warming.head;
  const auto tell = [&](EpochNumber epoch, double seconds) {
    engine::LongWaits told;
    told.silent.push_back({NodeId{2}, epoch, seconds});
    head.tell(NodeId{1}, told);
    head.pass(1s, {0, 1, 2, 3});
  };
  warming.members.bring_up(3, {0, 1, 2, 3});
  head.plan(1);
  head.pass(3s, {0, 1, 2, 3});
  warming.members.run_step(2, 3);
  REQUIRE(warming.is_warming());
  warming.members.bring_up(4, {0, 1, 2, 3});
  head.plan(2);
  tell(3, 50);  // During the step before.
  tell(4, 8.9);
  CHECK(warming.newest(3).epoch_number == 4);
  tell(4, 9);  // Three times the longest step.
  CHECK(warming.newest(3).epoch_number == 5);
}

/// Moves to node 1 after the loss of another one, during the step that was to bring all state.
std::ptrdiff_t moves_after_loss(bool is_decided) {
  Warming warming(1 << 30);
  Head& head = warming.head;
  warming.members.bring_up(3, {0, 1, 2, 3});
  head.plan(1);
  const std::size_t devices = head.scheduler.begins.back().plan.devices.size();
  for (std::size_t device = 0; device < devices; ++device)
    if (is_decided || device > 0) head.prepared(device, 2, 1, 1, 3);
  warming.members.lose(0);
  if (is_decided)
    for (std::size_t device = 0; device < devices; ++device) head.finished(device, 2, 3);
  const Configuration& next = warming.newest();
  CHECK(next.epoch_number == 4);
  CHECK(next.arriving.empty());
  CHECK(next.plan.nodes().contains(NodeId{1}));
  return std::count_if(next.moves.begin(), next.moves.end(),
                       [](const auto& move) { return move.to.node == NodeId{1}; });
}

// Window: state comes during a step, for who joins
TEST_CASE("what had not arrived when a node is lost is not counted on", "[actors][members]") {
  CHECK(moves_after_loss(true) < moves_after_loss(false));
}

// Window: a node that joins, before it works
TEST_CASE("who joins and is lost before it works leaves the layout as it was",
          "[actors][members]") {
  Warming warming(1);
  Head& head = warming.head;
  const ParallelPlan before = head.seen[2].configurations[1].plan;
  warming.next_step();
  warming.members.bring_up(4, {0, 1, 2, 3});
  head.plan(2);
  caf::anon_send_exit(head.nodes[1], caf::exit_reason::kill);
  head.system.run();
  head.system.pass(400ms);
  CHECK_FALSE(head.ended);
  const Configuration& next = head.seen[2].configurations.back();
  CHECK(next.epoch_number == 5);
  CHECK((next.plan == before));
  CHECK(next.arriving.empty());
}

TEST_CASE("a warm-up whose change cannot be is undone", "[actors][members]") {
  Warming warming(1);
  const ParallelPlan before = warming.head.seen[2].configurations[1].plan;
  warming.head.resources.setup.job.cluster.device_memory_gib = 1e-7;
  warming.next_step();
  const Configuration& next = warming.newest(2);
  CHECK(next.epoch_number == 4);
  CHECK((next.plan == before));
  CHECK(next.arriving.empty());
  CHECK(says(warming.members.log(), "node 1 joined and waits for work"));
  warming.members.bring_up(4, {0, 1, 2, 3});
  const auto status =
      observe::read_status(warming.members.ask(ControlRequest::Kind::status)).value();
  CHECK(status.nodes[1].state == "waiting for work");
}

TEST_CASE("who leaves is not kept waiting by who joins", "[actors][members]") {
  Warming warming(1);
  warming.members.ask(ControlRequest::Kind::drain, 3);
  warming.next_step();
  const Configuration& next = warming.newest(3);
  CHECK(next.arriving.empty());
  CHECK_FALSE(next.plan.nodes().contains(NodeId{3}));
  CHECK(next.plan.nodes().contains(NodeId{1}));
}

TEST_CASE("without costs nobody knows whether it pays, and all wait", "[actors][members]") {
  Warming warming(0);
  CHECK_FALSE(warming.is_warming());
  CHECK(warming.newest().epoch_number == 3);
}

TEST_CASE("state comes while others train where it would hold them up for long",
          "[actors][members]") {
  // 1 kB/s: what there is takes seconds; or as fast as this machine's memory.
  const bool is_slow = GENERATE(true, false);
  Members members;
  Head& head = members.head;
  members.know_network(is_slow ? 1e-6 : 1);
  members.replace_one();
  head.system.pass(1000ms);
  members.run_step(1, 2);
  CHECK(head.seen[1].configurations.back().arriving.empty() == !is_slow);
}

}  // namespace
}  // namespace troupe::actors
