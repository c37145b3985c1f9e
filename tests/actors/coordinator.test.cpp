#include "actors/coordination/coordinator.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

namespace troupe::actors {
namespace {

const std::vector<DeviceSlot> kDevices{{NodeId{0}, 0}, {NodeId{1}, 0}, {NodeId{2}, 0}};

StatePlacement held_by(std::vector<DeviceSlot> holders) {
  return {{{ParameterId{0}, StateKind::value, {}}, std::move(holders)}};
}

/// Three nodes with a device each, which all hold all state.
struct Three {
  Coordinator job;

  explicit Three(std::int64_t steps = 9) {
    job::Job wish;
    wish.train.duration = {job::DurationUnit::steps, steps};
    job.members = Membership(3);
    job.begin({{}, engine::TrainingLength(wish, data::Epochs(100)), engine::SkippedSteps(9, 100)},
              0);
    for (int i = 0; i < 3; ++i) {
      job.members.join(NodeId{i}, "host", i, {});
      job.members.ready(NodeId{i}, false);
    }
  }

  CameUp come_up(const std::vector<DeviceSlot>& devices, bool is_late = false) {
    const EpochNumber generation = job.bring_up(devices, held_by(devices), is_late);
    for (const DeviceSlot& device : devices) job.fetched(device.node, generation);
    CameUp what = CameUp::nothing;
    for (const DeviceSlot& device : devices) what = job.applied(device.node, generation);
    return what;
  }

  void train() {
    come_up(kDevices);
    job.train();
  }

  bool plan(std::int64_t number, EpochNumber generation) {
    auto batch = std::make_shared<engine::PlannedBatch>();
    batch->batch = number;
    batch->iteration.epoch_number = generation;
    batch->iteration.samples.resize(1);
    batch->iteration.trained_tokens = 1;
    return job.planned(batch, 0);
  }

  bool prepared(std::int64_t step, int device) {
    return job.prepared({step, job.members.generation(), DeviceId{device}, {}, {}});
  }

  bool finished(std::int64_t step, int device) {
    return job.device_finished(
        {step, job.members.generation(), DeviceId{device}, {}, {}, {}, {}, 0, {}});
  }
};

TEST_CASE("the next layout begins where nodes are lost, behind a step whose COMMIT is known",
          "[coordination]") {
  Three three;
  Coordinator& job = three.job;
  three.train();
  REQUIRE(three.plan(0, 1));
  CHECK_FALSE(three.prepared(1, 0));
  CHECK_FALSE(three.prepared(1, 1));
  SECTION("no word was given: the step does not count") {
    CHECK(job.lose(NodeId{2}) == Move::regroup);
    CHECK_FALSE(three.prepared(1, 2));  // Nobody decides now.
    CHECK_FALSE(three.plan(1, 1));
    CHECK(job.next({}) == Move::wait);
  }
  SECTION("it is known: who is left finishes it") {
    REQUIRE(three.prepared(1, 2));
    REQUIRE(job.decide(1, 0)->decision.commit);
    CHECK_FALSE(job.is_at_rest());
    CHECK(three.finished(1, 0));
    CHECK(job.lose(NodeId{2}) == Move::finish);
    CHECK_FALSE(job.has_ended_step());
    CHECK(three.finished(1, 1));
    CHECK(job.has_ended_step());
    job.loop.finish();
    CHECK(job.finished() == Move::regroup);
  }
  job.loop.rewind();
  CHECK(three.come_up({kDevices[0], kDevices[1]}) == CameUp::regrouped);
  CHECK(job.members.generation() == 2);
  CHECK_FALSE(job.is_regrouping());
  CHECK((job.members.placed() == held_by({kDevices[0], kDevices[1]})));
}

TEST_CASE("state lies where a layout wants it from the word on to turn over to it",
          "[coordination]") {
  Three three;
  Coordinator& job = three.job;
  CHECK(three.come_up(kDevices) == CameUp::first);
  const EpochNumber generation = job.bring_up(kDevices, held_by({kDevices[0], kDevices[1]}), false);
  CHECK((job.left_without(NodeId{0}) == held_by({kDevices[1], kDevices[2]})));
  for (int i = 0; i < 2; ++i) CHECK_FALSE(job.fetched(NodeId{i}, generation));
  CHECK_FALSE(job.fetched(NodeId{2}, generation - 1));
  CHECK(job.fetched(NodeId{2}, generation));
  CHECK((job.left_without(NodeId{0}) == held_by({kDevices[1]})));
}

TEST_CASE("a layout that is halted does not come up, and state can be saved where it lies",
          "[coordination]") {
  Three three;
  Coordinator& job = three.job;
  three.train();
  REQUIRE(three.plan(0, 1));
  for (int i = 0; i < 3; ++i) three.prepared(1, i);
  REQUIRE(job.decide(1, 0));
  for (int i = 0; i < 3; ++i) three.finished(1, i);
  job.loop.finish();
  const EpochNumber generation = job.bring_up(kDevices, held_by({kDevices[0], kDevices[1]}), false);
  const bool turns_over = GENERATE(false, true);
  if (turns_over)
    for (int i = 0; i < 3; ++i) job.fetched(NodeId{i}, generation);
  CHECK_FALSE(job.is_at_rest());
  job.halt();
  CHECK(job.is_at_rest());
  const auto lies = turns_over ? std::vector{kDevices[0], kDevices[1]} : kDevices;
  CHECK((job.members.placed() == held_by(lies)));
  for (int i = 0; i < 3; ++i) CHECK_FALSE(job.fetched(NodeId{i}, generation));
  for (int i = 0; i < 3; ++i) CHECK(job.applied(NodeId{i}, generation) == CameUp::nothing);
  CHECK(job.finished() == Move::wait);
  job.lose(NodeId{2});
  CHECK(job.is_at_rest());
  CHECK(job.finished() == Move::wait);
  three.come_up({kDevices[0], kDevices[1]});
  CHECK_FALSE(job.is_halted());
}

TEST_CASE("what comes during a step counts once it is decided", "[coordination]") {
  Three three;
  Coordinator& job = three.job;
  three.train();
  job.members.place(held_by({kDevices[0]}));
  const EpochNumber generation = job.bring_up(kDevices, held_by(kDevices), true);
  for (int i = 0; i < 3; ++i) job.fetched(NodeId{i}, generation);
  CHECK((job.left_without(NodeId{2}) == held_by({kDevices[0]})));
  for (int i = 0; i < 2; ++i) job.applied(NodeId{i}, generation);
  CHECK(job.applied(NodeId{2}, generation) == CameUp::late_state);
  job.train();
  CHECK(job.started() == Move::look_on);
  job.members.leave(NodeId{1}, {});
  CHECK(job.next({true, true}) == Move::plan);  // Its first step runs in this layout.
  job.loop.ask();
  CHECK(job.next({}) == Move::wait);
  REQUIRE(three.plan(0, generation));
  CHECK((job.members.placed() == held_by({kDevices[0]})));
  for (int i = 0; i < 3; ++i) three.prepared(1, i);
  job.decide(1, 0);
  CHECK((job.members.placed() == held_by(kDevices)));
}

TEST_CASE("what a late layout lets go counts until all may turn over to it", "[coordination]") {
  Three three;
  Coordinator& job = three.job;
  three.train();
  const EpochNumber generation = job.bring_up(kDevices, held_by({kDevices[0], kDevices[2]}), true);
  for (int i = 0; i < 2; ++i) CHECK_FALSE(job.fetched(NodeId{i}, generation));
  CHECK((job.members.placed() == held_by(kDevices)));
  CHECK(job.fetched(NodeId{2}, generation));
  CHECK((job.members.placed() == held_by({kDevices[0], kDevices[2]})));
}

TEST_CASE("who comes or goes is first between two steps, then the owner's layout, then the job's",
          "[coordination]") {
  Three three;
  Coordinator& job = three.job;
  CHECK(job.next({}) == Move::wait);
  three.train();
  CHECK(job.next({}) == Move::plan);
  CHECK(job.next({false, true}) == Move::listed_layout);
  CHECK(job.next({true, true}) == Move::asked_layout);
  job.members.leave(NodeId{1}, {});
  CHECK(job.next({true, true}) == Move::change_members);
  job.loop.ask();
  CHECK(job.next({}) == Move::change_members);  // It waits for no plan.
  job.members.keep_leaving();
  CHECK(job.next({true, false}) == Move::asked_layout);
  CHECK(job.next({}) == Move::wait);
  REQUIRE(three.plan(0, 1));
  CHECK(job.next({true, false}) == Move::wait);  // Until the step has ended.
  CHECK(job.next({}) == Move::plan);
  job.stop();
  CHECK(job.next({}) == Move::wait);
}

TEST_CASE("a layout for a batch without a plan comes behind what was asked for, between two steps",
          "[coordination]") {
  Three three;
  Coordinator& job = three.job;
  Wishes roomy;
  roomy.roomy_layout = true;
  three.train();
  REQUIRE(three.plan(0, 1));
  job.loop.ask();
  CHECK(job.next(roomy) == Move::wait);  // The step under way counts.
  for (int i = 0; i < 3; ++i) three.prepared(1, i);
  job.decide(1, 0);
  for (int i = 0; i < 3; ++i) three.finished(1, i);
  job.loop.finish();
  CHECK(job.next(roomy) == Move::roomy_layout);  // No plan comes that was asked for.
  CHECK(job.next({true, true, true}) == Move::asked_layout);
  CHECK(job.next({false, true, true}) == Move::roomy_layout);
  job.members.leave(NodeId{1}, {});
  CHECK(job.next(roomy) == Move::change_members);
  job.members.keep_leaving();
  job.stop();
  CHECK(job.next(roomy) == Move::wait);
}

TEST_CASE("a batch without a plan is not trained while state comes", "[coordination]") {
  Three three;
  Coordinator& job = three.job;
  three.train();
  const EpochNumber generation = job.bring_up(kDevices, held_by(kDevices), true);
  for (int i = 0; i < 3; ++i) job.fetched(NodeId{i}, generation);
  for (int i = 0; i < 3; ++i) job.applied(NodeId{i}, generation);
  job.train();
  job.loop.ask();
  REQUIRE(job.is_arriving());
  Wishes roomy;
  CHECK(job.next(roomy) == Move::wait);
  roomy.roomy_layout = true;
  CHECK(job.next(roomy) == Move::roomy_layout);
}

TEST_CASE("a job that stops or regroups takes no plan, and none of another layout",
          "[coordination]") {
  Three three;
  three.train();
  CHECK_FALSE(three.plan(0, 2));
  SECTION("stops") {
    three.job.stop();
    CHECK_FALSE(three.job.bears_losses());
  }
  SECTION("regroups") { three.job.regroup(); }
  SECTION("ends") {
    three.job.end();
    CHECK(three.job.finished() == Move::wait);
  }
  CHECK_FALSE(three.plan(0, 1));
}

TEST_CASE("a job is done behind its last step", "[coordination]") {
  Three three(1);
  Coordinator& job = three.job;
  three.train();
  REQUIRE(three.plan(0, 1));
  CHECK(job.next({}) == Move::wait);
  for (int i = 0; i < 3; ++i) three.prepared(1, i);
  job.decide(1, 0);
  for (int i = 0; i < 3; ++i) three.finished(1, i);
  job.loop.finish();
  CHECK(job.finished() == Move::collect);
  CHECK(job.is_at_rest());
  CHECK(job.started() == Move::collect);
}

TEST_CASE("whom a job loses depends on how far both have come", "[coordination]") {
  Three three;
  Coordinator& job = three.job;
  CHECK(job.kind_of_loss(NodeId{0}) == LossKind::member);
  CHECK_FALSE(job.bears_losses());  // It has not begun.
  three.train();
  CHECK(job.bears_losses());
  job.forget(NodeId{2});
  CHECK(job.kind_of_loss(NodeId{2}) == LossKind::none);
  job.members.join(NodeId{2}, "host", 9, {});
  CHECK(job.kind_of_loss(NodeId{2}) == LossKind::newcomer);
  job.gather();
  CHECK(job.kind_of_loss(NodeId{2}) == LossKind::gathered);
  job.end();
  CHECK(job.kind_of_loss(NodeId{0}) == LossKind::leaver);
  CHECK(job.is_over());
}

TEST_CASE("another head goes on in a later generation, without those that were lost with it",
          "[coordination]") {
  Three three;
  Coordinator& job = three.job;
  job.take_over(7, held_by({kDevices[0], kDevices[1]}), {NodeId{2}});
  CHECK(job.is_regrouping());
  CHECK((job.members.staying() == std::set{NodeId{0}, NodeId{1}}));
  CHECK(three.come_up({kDevices[0], kDevices[1]}) == CameUp::regrouped);
  CHECK(job.members.generation() == 8);
}

}  // namespace
}  // namespace troupe::actors
