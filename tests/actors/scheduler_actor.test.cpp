#include "tests/torch_catch.hpp"

#include "actors/head/scheduler_actor.hpp"

#include <catch2/catch_approx.hpp>

#include "actors/head/recorder_actor.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "tests/actors/fake_actors.hpp"
#include "tests/actors/test_system.hpp"
#include "tests/engine/measured_events.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/runtime/data/temp_folder.hpp"

namespace troupe::actors {
namespace {

/// A scheduler between four fake nodes and a fake supervisor. 60 records in batches of 6; nodes
/// measure at once what they are asked to, and decode two batches ahead when a test says so.
struct Fixture {
  explicit Fixture(std::int64_t first_batch = 0, const LearnedCosts& learned = {}) {
    job::Job job = engine::tiny_job();
    job.data.prefetch = 2;
    job.balancer.dealing = "count";
    setup = engine::prepare(job).value();
    plan = engine::make_parallel_plan(setup).value();
    for (NodeSeen& node : seen) nodes.push_back(system.get().spawn(fake_node, &node));
    supervisor = system.get().spawn(fake_supervisor, &told);
    JobProgress before;
    before.step = first_batch;
    before.learned = learned;
    before.data.epochs = {{0, {60}}};
    actor = system.get().spawn(scheduler, &setup, before, supervisor);
  }

  ~Fixture() {
    for (const auto& node : nodes) caf::anon_send_exit(node, caf::exit_reason::kill);
    caf::anon_send_exit(supervisor, caf::exit_reason::kill);
    caf::anon_send_exit(actor, caf::exit_reason::kill);
    system.run();
  }

  void begin(EpochNumber epoch_number, std::int64_t next = 0) {
    std::vector<caf::strong_actor_ptr> handles;
    for (const auto& node : nodes) handles.push_back(caf::actor_cast<caf::strong_actor_ptr>(node));
    caf::anon_send(actor, begin_atom::value, Configuration{epoch_number, plan, {}}, handles, next);
    system.run();
  }

  void ask() {
    caf::anon_send(actor, next_atom::value);
    system.run();
    measure();
  }

  /// All that is to be measured is.
  void measure() {
    for (std::size_t id = 0; id < seen.size(); ++id)
      for (; measured[id] < seen[id].orders.size(); ++measured[id]) {
        const auto order = seen[id].orders[measured[id]];
        if (order.measure && measures) tell(lengths(id, order));
      }
    system.run();
  }

  engine::BatchReport lengths(std::size_t id, const engine::BatchOrder& order) const {
    auto report = engine::tiny_lengths(setup, order);
    report.node = NodeId{id};
    report.decode_ms = 0.5;
    return report;
  }

  /// What a node was told to decode, in order.
  std::vector<engine::BatchOrder> decodes(std::size_t id) const {
    std::vector<engine::BatchOrder> orders;
    for (const auto& order : seen[id].orders)
      if (!order.measure) orders.push_back(order);
    return orders;
  }

  /// What node `id` finds in the batch it was given as order number `order`.
  engine::BatchReport report(std::size_t id, std::size_t order) const {
    const engine::BatchOrder ordered = decodes(id).at(order);
    std::vector<data::DecodeOutcome> outcomes;
    for (const auto& sample : ordered.samples)
      outcomes.emplace_back(engine::tiny_sample(sample.position));
    return engine::report_on(NodeId{id}, ordered, outcomes, setup, 1);
  }

  void tell(engine::BatchReport report) {
    caf::anon_send(actor, std::move(report));
    system.run();
  }

  std::vector<std::int64_t> planned() const {
    std::vector<std::int64_t> batches;
    for (const auto& batch : told.batches) batches.push_back(batch->batch);
    return batches;
  }

  std::vector<std::int64_t> ordered(std::size_t node) const {
    std::vector<std::int64_t> batches;
    for (const auto& order : decodes(node)) batches.push_back(order.batch);
    return batches;
  }

  TestSystem system;
  engine::JobSetup setup;
  ParallelPlan plan;
  std::vector<NodeSeen> seen = std::vector<NodeSeen>(4);
  std::vector<std::size_t> measured = std::vector<std::size_t>(4);  ///< Orders looked at.
  bool measures = true;                                             ///< Nodes answer at once.
  SupervisorSeen told;
  std::vector<NodeActor> nodes;
  SupervisorActor supervisor;
  SchedulerActor actor;
};

using Batches = std::vector<std::int64_t>;

TEST_CASE("nodes decode as many batches ahead as the job says", "[actors]") {
  Fixture fixture;
  fixture.begin(1);
  CHECK(fixture.ordered(0).empty());  // Nothing was asked for.

  fixture.ask();  // Batch 0 is wanted; two more are ordered ahead.
  for (std::size_t node = 0; node < 4; ++node) CHECK((fixture.ordered(node) == Batches{0, 1, 2}));
  fixture.ask();
  CHECK((fixture.ordered(3) == Batches{0, 1, 2, 3}));
  // Each node gets its own share: node 0 has an encoder, node 1 the llm of the same pipeline.
  CHECK_FALSE(fixture.decodes(0)[0].samples[0].text);
  CHECK(fixture.decodes(1)[0].samples[0].text);
  CHECK(fixture.decodes(1)[0].samples[0].media.empty());
}

TEST_CASE("a batch is measured before it is decoded, one beyond those that are", "[actors]") {
  Fixture fixture;
  fixture.measures = false;
  fixture.begin(1);
  fixture.ask();
  std::vector<engine::BatchOrder> asked = fixture.seen[0].orders;
  REQUIRE(asked.size() == 4);
  for (std::size_t batch = 0; batch < 4; ++batch) {
    CHECK(asked[batch].measure);
    CHECK(asked[batch].batch == static_cast<std::int64_t>(batch));
  }
  // Batch 1 is known before batch 0: neither is decoded until the first is planned.
  const auto answer = [&](std::size_t batch, std::size_t nodes) {
    for (std::size_t id = 0; id < nodes; ++id)
      fixture.tell(fixture.lengths(id, fixture.seen[id].orders[batch]));
  };
  answer(1, 4);
  answer(0, 3);
  CHECK(fixture.ordered(0).empty());
  fixture.tell(fixture.lengths(3, fixture.seen[3].orders[0]));
  CHECK((fixture.ordered(0) == Batches{0, 1}));
  answer(2, 4);
  answer(3, 4);
  CHECK((fixture.ordered(0) == Batches{0, 1, 2}));  // Batch 3 waits for the next step.
}

TEST_CASE("a batch is planned once all nodes have reported, whatever their order", "[actors]") {
  Fixture fixture;
  fixture.begin(1);
  fixture.ask();
  for (const std::size_t node : {3u, 0u, 2u}) {
    fixture.tell(fixture.report(node, 0));
    CHECK(fixture.planned().empty());
  }
  fixture.tell(fixture.report(1, 0));

  REQUIRE((fixture.planned() == Batches{0}));
  const IterationPlan& iteration = fixture.told.batches[0]->iteration;
  CHECK(iteration.step == 1);
  CHECK(iteration.epoch_number == 1);
  CHECK(iteration.samples.size() == 6);
  CHECK(fixture.told.batches[0]->decode_ms == 6);  // 1 and 0.5 ms on each of four nodes.
}

TEST_CASE("plans come in order and only as many as were asked for", "[actors]") {
  Fixture fixture;
  fixture.begin(1);
  fixture.ask();
  for (std::size_t node = 0; node < 4; ++node) fixture.tell(fixture.report(node, 1));
  CHECK(fixture.planned().empty());  // Batch 1 is decoded first; batch 0 comes first.
  for (std::size_t node = 0; node < 4; ++node) fixture.tell(fixture.report(node, 0));
  CHECK((fixture.planned() == Batches{0}));
  fixture.ask();
  CHECK((fixture.planned() == Batches{0, 1}));  // It waited, decoded, for this word.
}

TEST_CASE("a report that makes no sense goes to the supervisor as a failure", "[actors][errors]") {
  Fixture fixture;
  fixture.begin(3);
  fixture.ask();
  for (std::size_t node = 0; node < 3; ++node) fixture.tell(fixture.report(node, 0));
  auto wrong = fixture.report(3, 0);
  wrong.samples[0].position = 99;
  fixture.tell(wrong);

  CHECK(fixture.planned().empty());
  REQUIRE(fixture.told.failures.size() == 1);
  CHECK(fixture.told.failures[0].message.find("outside the batch") != std::string::npos);
  CHECK(fixture.told.unplanned == std::vector<EpochNumber>{3});  // Another one plans it anew.
}

TEST_CASE("a batch that has no plan goes to the supervisor with its samples", "[actors][errors]") {
  Fixture fixture;
  fixture.setup.costs =
      engine::planning_costs(fixture.setup, engine::nominal_profile(fixture.setup), Bytes{1000})
          .value();
  fixture.begin(3);
  fixture.ask();
  CHECK(fixture.told.refused.empty());  // It is not due before all have reported.
  for (std::size_t node = 0; node < 4; ++node) fixture.tell(fixture.report(node, 0));
  CHECK(fixture.planned().empty());
  CHECK(fixture.told.failures.empty());
  REQUIRE(fixture.told.refused.size() == 1);
  const engine::RefusedBatch& refused = *fixture.told.refused[0];
  CHECK(refused.batch == 0);
  CHECK(refused.epoch_number == 3);
  CHECK(refused.why.code == Errc::infeasible);
  CHECK(refused.samples.size() == 6);
}

TEST_CASE("a new configuration drops what was reported and decoded for the old one", "[actors]") {
  Fixture fixture;
  fixture.begin(1);
  fixture.ask();
  for (std::size_t node = 0; node < 3; ++node) fixture.tell(fixture.report(node, 0));
  const auto late = fixture.report(3, 0);

  fixture.begin(2);
  fixture.ask();
  // The batch that was not planned is ordered again, now for epoch number 2.
  CHECK((fixture.ordered(0) == Batches{0, 1, 2, 0, 1, 2}));
  CHECK(fixture.decodes(0)[3].epoch_number == 2);
  fixture.tell(late);  // Would have completed batch 0 of the old configuration.
  CHECK(fixture.planned().empty());
  for (std::size_t node = 0; node < 4; ++node) fixture.tell(fixture.report(node, 3));
  REQUIRE((fixture.planned() == Batches{0}));
  CHECK(fixture.told.batches[0]->iteration.epoch_number == 2);
  CHECK(fixture.told.failures.empty());
}

TEST_CASE("what was planned beyond the last finished step is planned again", "[actors]") {
  Fixture fixture;
  fixture.begin(1);
  for (int batch = 0; batch < 2; ++batch) {
    fixture.ask();
    for (std::size_t node = 0; node < 4; ++node)
      fixture.tell(fixture.report(node, static_cast<std::size_t>(batch)));
  }
  REQUIRE((fixture.planned() == Batches{0, 1}));
  fixture.begin(2, 1);  // The second batch was under way when a node was lost.
  fixture.ask();
  const auto orders = fixture.decodes(0);
  REQUIRE(orders.size() == 7);
  CHECK(orders[4].batch == 1);
  for (std::size_t node = 0; node < 4; ++node) fixture.tell(fixture.report(node, 4));
  REQUIRE((fixture.planned() == Batches{0, 1, 1}));
  CHECK(fixture.told.batches[2]->iteration.samples.size() ==
        fixture.told.batches[1]->iteration.samples.size());
}

TEST_CASE("planning begins with the first batch that is not trained yet", "[actors]") {
  Fixture fixture;
  fixture.begin(1, 7);  // Of ten batches in an epoch.
  fixture.ask();
  CHECK((fixture.ordered(2) == Batches{7, 8, 9}));
  for (std::size_t node = 0; node < 4; ++node) fixture.tell(fixture.report(node, 0));
  REQUIRE((fixture.planned() == Batches{7}));
  CHECK(fixture.told.batches[0]->iteration.step == 8);
}

TEST_CASE("batches that are ordered once a node is told to be slow are dealt by that", "[actors]") {
  Fixture fixture;
  fixture.begin(1);
  fixture.ask();
  // The llm of pipeline 1 begins on node 2 and ends on node 3: 3 of 6 samples by count.
  CHECK(fixture.decodes(3)[0].samples.size() == 3);
  for (const std::size_t node : {2u, 3u})
    caf::anon_send(fixture.actor, speed_atom::value, NodeId{node}, 5.0);
  fixture.system.run();
  fixture.ask();
  REQUIRE((fixture.ordered(3) == Batches{0, 1, 2, 3}));
  CHECK(fixture.decodes(3)[2].samples.size() == 3);  // Ordered before.
  CHECK(fixture.decodes(3)[3].samples.size() == 1);
  // Who plans the next layout knows it too.
  fixture.begin(2);
  fixture.ask();
  CHECK(fixture.decodes(3)[4].samples.size() == 1);
}

TEST_CASE("what was learned is said to a save, and taken up by the planners that follow",
          "[actors]") {
  const auto say = [](Fixture& fixture, std::int64_t save) {
    caf::anon_send(fixture.actor, save_atom::value, save);
    fixture.system.run();
    return fixture.told.learned.at(save);
  };
  LearnedCosts learned;
  {
    Fixture fixture;
    fixture.begin(1);
    CHECK((say(fixture, 1) == LearnedCosts{}));
    learned.stages = engine::learned_stages(fixture.plan);
  }
  learned.stages[0].speed = 1.5;
  learned.speed_steps = 3;
  {
    Fixture fixture(4, learned);
    CHECK((say(fixture, 1) == learned));  // Before there is a layout.
    fixture.begin(1, 4);
    CHECK((say(fixture, 2) == learned));
    fixture.begin(2, 4);  // Nodes were lost and came back.
    CHECK((say(fixture, 3) == learned));
  }
  learned.profile = "measured before";
  Fixture fixture(4, learned);
  fixture.begin(1, 4);
  CHECK((say(fixture, 1) == LearnedCosts{}));  // Relative to times that nobody plans with any more.
}

TEST_CASE("finished steps are held against the profile", "[actors]") {
  const data::TempFolder folder;
  Fixture fixture;
  fixture.setup.profile.file = folder.path() / "profile.json";
  fixture.setup.job.cluster.local_nodes = 0;  // Each node has a machine, and its cores, to itself.
  fixture.setup.costs =
      engine::planning_costs(fixture.setup, engine::nominal_profile(fixture.setup),
                             Bytes{std::int64_t{1} << 30})
          .value();
  fixture.begin(1);
  auto batch = std::make_shared<engine::PlannedBatch>();
  batch->iteration.epoch_number = 1;
  auto record = std::make_shared<StepRecord>();
  for (std::int32_t stage = 0; stage < 4; ++stage) {
    batch->prediction.profile_stage_ms.push_back(10);
    record->events.push_back(engine::slice(ActionKind::forward, stage, 14));
  }
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i)
      caf::anon_send(fixture.actor, PlannedBatchPtr(batch), StepRecordPtr(record));
    fixture.system.run();
    return engine::load_notes(fixture.setup.profile.file);
  };
  batch->iteration.epoch_number = 2;  // Not of this configuration.
  CHECK(steps(30).empty());
  batch->iteration.epoch_number = 1;
  CHECK(steps(21).empty());
  const auto notes = steps(1);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].ratio == Catch::Approx(1.4));
}

TEST_CASE("what to do when nodes are lost is worked out anew for a layout that was asked for",
          "[actors]") {
  Fixture fixture;
  fixture.setup.costs =
      engine::planning_costs(fixture.setup, engine::nominal_profile(fixture.setup),
                             Bytes{std::int64_t{1} << 30})
          .value();
  const auto first_batch = [&](EpochNumber epoch) {
    for (NodeSeen& node : fixture.seen) node.orders.clear();
    fixture.measured.assign(4, 0);
    fixture.begin(epoch);
    fixture.ask();
    for (std::size_t node = 0; node < 4; ++node) fixture.tell(fixture.report(node, 0));
  };
  first_batch(1);
  REQUIRE(fixture.told.templates.size() == 1);
  CHECK(fixture.told.templates[0]->templates.size() > 1);
  first_batch(2);  // After a loss, say: the same set serves.
  CHECK(fixture.told.templates.size() == 1);
  caf::anon_send(fixture.actor, layout_atom::value);
  first_batch(3);
  CHECK(fixture.told.templates.size() == 2);
  first_batch(4);
  CHECK(fixture.told.templates.size() == 2);
}

}  // namespace
}  // namespace troupe::actors
