// Jobs whose next batch has no plan on the layout that is up.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_refused_batch.hpp"

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "engine/iteration/refused_batch.hpp"
#include "engine/layout/asked_layout.hpp"
#include "engine/layout/batch_memory.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "tests/actors/saving_head.hpp"
#include "tests/actors/template_set.hpp"

namespace troupe::actors {
namespace {

/// A job of two pipelines on four nodes, whose devices have memory enough. `knows_others`: how
/// pipelines of other lengths would be cut.
struct Roomy {
  explicit Roomy(bool knows_others, const std::function<void(job::Job&)>& place = {})
      : saving(9, {}, place) {
    have(std::int64_t{1} << 30);
    if (knows_others) head.tell(templates_of(head.resources.setup));
  }

  void have(std::int64_t bytes) {
    engine::JobSetup& setup = head.resources.setup;
    setup.costs =
        engine::planning_costs(setup, engine::nominal_profile(setup), Bytes{bytes}).value();
  }

  std::vector<SampleShape> samples(std::int64_t batch) {
    return engine::plan_tiny_batch(head.resources.setup, head.resources.plan, store, batch)
        .value()
        .iteration.samples;
  }

  /// The scheduler has no plan for this batch on the layout of a generation.
  void refuse(std::int64_t batch, EpochNumber generation, std::vector<SampleShape> own) {
    engine::RefusedBatch refused;
    refused.batch = batch;
    refused.epoch_number = generation;
    refused.why = {Errc::infeasible, "the largest microbatch is above the cap",
                   "cluster.device_memory_gib", "raise it"};
    refused.samples = std::move(own);
    head.tell(std::make_shared<const engine::RefusedBatch>(std::move(refused)));
  }
  /// The same on the newest one.
  void refuse(std::int64_t batch) { refuse(batch, newest().epoch_number, samples(batch)); }

  void bring_up(EpochNumber generation, const std::vector<std::size_t>& nodes) {
    for (const std::size_t id : nodes) head.tell(fetched_atom::value, NodeId{id}, generation, 0.0);
    for (const std::size_t id : nodes) head.tell(applied_atom::value, NodeId{id}, generation);
  }

  const Configuration& newest() const { return head.seen[0].configurations.back(); }
  std::size_t layouts() const { return head.seen[0].configurations.size(); }

  SavingHead saving;
  Head& head = saving.head;
  engine::SampleStore store;
};

// Window: the next batch has no plan on the layout that is up
TEST_CASE("a batch without a plan is trained on another layout, behind the step under way",
          "[actors][layout]") {
  Roomy job(true);
  Head& head = job.head;
  job.saving.run_step(1);
  head.plan(1);
  job.refuse(2);
  CHECK(job.layouts() == 1);
  head.run_step(2);
  REQUIRE(job.layouts() == 2);
  CHECK_FALSE(job.newest().plan == head.resources.plan);
  CHECK(head.seen[0].saves.empty());
  head.bring_up(2);
  CHECK(job.layouts() == 2);  // It is planned anew there.
  CHECK(head.scheduler.next.back() == 2);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].kind == "layout");
  CHECK(head.recorder.events[0].why ==
        "step 3 has no plan on the layout before: the largest microbatch is above the cap");
  CHECK(says(job.saving.log(),
             "step 3 has no plan on the present layout: the largest microbatch is above the cap; "
             "the job takes up another one, "));
  CHECK_FALSE(head.ended);
}

// Window: the next batch has no plan on the layout that is up
TEST_CASE("no layout is tried twice for a batch, and where none is left the job saves and ends",
          "[actors][layout][errors]") {
  Roomy job(true);
  Head& head = job.head;
  job.saving.run_step(1);
  std::vector<ParallelPlan> tried;
  for (EpochNumber generation = 1;; ++generation) {
    REQUIRE(tried.size() < 20);
    CHECK(std::ranges::find(tried, job.newest().plan) == tried.end());
    tried.push_back(job.newest().plan);
    job.refuse(1);
    if (job.layouts() == tried.size()) break;
    head.bring_up(generation + 1);
  }
  CHECK(tried.size() > 2);
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(job.saving.order().step == 1);
  job.saving.write();
  job.saving.keep();
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == 2);
  CHECK(says(head.ended->message,
             "cluster.device_memory_gib: the largest microbatch is above the cap; of the batch's "
             "samples 's"));
  CHECK(says(head.ended->message, " tokens) has least room: alone it keeps "));
  CHECK(says(head.ended->message,
             "; no other layout of the 4 nodes that are there has a plan for step 2: "));
  CHECK(says(head.ended->message,
             "; step 1 is saved: the same command with --resume goes on from there ("));
  CHECK(says(head.ended->message, "fix: raise it"));
}

TEST_CASE("another batch without a plan may have one on the layout that the job began with",
          "[actors][layout]") {
  Roomy job(true);
  Head& head = job.head;
  job.saving.run_step(1);
  job.refuse(1);
  REQUIRE(job.layouts() == 2);
  head.bring_up(2);
  job.refuse(2);  // As if it had trained the one before.
  REQUIRE(job.layouts() == 3);
  CHECK(job.newest().plan == head.resources.plan);
}

TEST_CASE("a batch without a plan on a layout that is not up any more means nothing",
          "[actors][recovery]") {
  Roomy job(true);
  Head& head = job.head;
  job.saving.run_step(1);
  head.lose(3);
  REQUIRE(job.layouts() == 2);
  job.refuse(1, 1, job.samples(1));
  job.bring_up(2, {0, 1, 2});
  job.refuse(1, 1, job.samples(1));
  CHECK(job.layouts() == 2);
  CHECK(head.seen[0].saves.empty());
  CHECK_FALSE(head.ended);
}

// Window: the next batch has no plan on the layout that is up
TEST_CASE("a job that lacks nodes for a batch's plan can be resumed with them",
          "[actors][recovery][errors]") {
  Roomy job(false);
  Head& head = job.head;
  job.saving.run_step(1);
  head.lose(3);
  job.bring_up(2, {0, 1, 2});
  REQUIRE(job.layouts() == 2);
  const auto samples = job.samples(1);
  const bool has_room = GENERATE(true, false);  // On all nodes.
  if (!has_room) job.have(1000);
  job.refuse(1, 2, samples);
  CHECK(job.layouts() == 2);
  REQUIRE(head.seen[0].saves.size() == 1);
  job.saving.write({3});
  job.saving.keep();
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == (has_room ? kResumable : 2));
  CHECK(says(head.ended->message, "; no other layout of the 3 nodes that are there has a plan"));
  CHECK(says(head.ended->message,
             "; the layout of 4 nodes that the job begins with has one; step 1 is saved: the same "
             "command goes on from there (") == has_room);
}

TEST_CASE("a first batch without a plan ends the job at once", "[actors][errors]") {
  Roomy job(true);
  Head& head = job.head;
  job.refuse(0);
  CHECK(job.layouts() == 1);
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 2);
  CHECK(says(head.ended->message, "; nothing is saved: no step was finished"));
}

TEST_CASE("a layout without room for its state beside the present one is none for a batch",
          "[actors][layout][errors]") {
  // What either half of the nodes has would have to go to the other one.
  Roomy job(true, [](job::Job& wish) {
    const HandRun vision{"vision", {}}, begin{"llm", LayerRange{0, 2}},
        end{"llm", LayerRange{2, 4}};
    wish.parallel.layout.pipelines = {{{1, 0, {vision, begin}}, {0, 0, {end}}},
                                      {{3, 0, {vision, begin}}, {2, 0, {end}}}};
    no_room_beside(wish);
  });
  job.saving.run_step(1);
  job.refuse(1);
  CHECK(job.layouts() == 1);
  CHECK(job.head.seen[0].saves.size() == 1);
}

/// How pipelines would be cut that need all four nodes, or three.
TemplateSetPtr long_templates(const engine::JobSetup& setup) {
  std::int64_t layers = 0;
  for (const auto& module : setup.model.modules) layers += std::ssize(module.layers);
  return templates_of(setup, (layers + 3) / 4);
}

TEST_CASE("a layout on which a batch is rehearsed in vain is none for it",
          "[actors][layout][errors]") {
  ParallelPlan other;  // The one that the job knows beside its own.
  {
    Roomy job(false, one_pipeline);
    job.head.tell(long_templates(job.head.resources.setup));
    job.saving.run_step(1);
    job.refuse(1);
    REQUIRE(job.layouts() == 2);
    other = job.newest().plan;
  }
  Roomy job(false, one_pipeline);
  const engine::JobSetup& setup = job.head.resources.setup;
  job.head.tell(long_templates(setup));
  job.saving.run_step(1);
  auto samples = job.samples(1);
  samples[0].llm_tokens = samples[1].llm_tokens = 4000;  // In order, of one microbatch.
  std::int64_t too_few = 0, enough = std::int64_t{1} << 30;
  while (enough - too_few > 1) {
    const std::int64_t bytes = (too_few + enough) / 2;
    job.have(bytes);
    (engine::rehearse(setup, other, samples).ok() ? enough : too_few) = bytes;
  }
  job.have(too_few);
  REQUIRE(engine::check_batch_memory(setup, other, samples).ok());
  job.refuse(1, 1, samples);
  CHECK(job.layouts() == 1);
  CHECK(job.head.seen[0].saves.size() == 1);
}

}  // namespace
}  // namespace troupe::actors
