#include "tests/torch_catch.hpp"

#include "engine/layout/batch_memory.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "engine/layout/asked_layout.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/layout/tight_sample.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {
namespace {

/// A job of six samples a step in three microbatches for each pipeline.
struct SixSamples {
  explicit SixSamples(const std::string& exchange = "off") {
    job::Job job = tiny_job();
    job.train.microbatches = 3;
    job.balancer.exchange = exchange;
    setup = prepare(job).value();
    own = make_parallel_plan(setup).value();
    SampleStore store;
    samples = plan_tiny_batch(setup, own, store).value().iteration.samples;
  }

  /// So many pipelines of one node each.
  ParallelPlan pipelines(std::int32_t count) const {
    std::vector<std::vector<HandStage>> written;
    for (std::int32_t node = 0; node < count; ++node)
      written.push_back({{node, 0, {{"vision", {}}, {"llm", {}}}}});
    return laid_out(written);
  }

  ParallelPlan laid_out(const std::vector<std::vector<HandStage>>& written) const {
    HandLayout layout;
    layout.pipelines = written;
    std::set<NodeId> nodes;
    for (const HandStage* stage : layout.all_stages()) nodes.insert(NodeId{stage->node});
    return plan_asked_layout(setup, layout, own, nodes, {memory_at_hand(setup.job.cluster)})
        .value()
        .plan;
  }

  void have(std::int64_t bytes) {
    setup.costs = planning_costs(setup, nominal_profile(setup), Bytes{bytes}).value();
  }

  /// Bytes of a device that are just enough for a plan of the samples.
  std::int64_t least_memory(const ParallelPlan& plan) {
    std::int64_t too_few = 0, enough = std::int64_t{1} << 30;
    while (enough - too_few > 1) {
      const std::int64_t bytes = (too_few + enough) / 2;
      have(bytes);
      (rehearse(setup, plan, samples).ok() ? enough : too_few) = bytes;
    }
    return enough;
  }

  JobSetup setup;
  ParallelPlan own;
  std::vector<SampleShape> samples;
};

TEST_CASE("a layout has no room for a batch where no cut of it does", "[engine][errors]") {
  SixSamples job;
  const ParallelPlan two = job.pipelines(2), one = job.pipelines(1);
  // Each of two pipelines has a sample in a microbatch, one has two in each: about twice as much.
  job.have(job.least_memory(two));
  CHECK(check_batch_memory(job.setup, two, job.samples).ok());
  const auto refused = check_batch_memory(job.setup, one, job.samples);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  CHECK(refused.error().where == "cluster.device_memory_gib");
  job.have(1000);  // Less than state takes.
  CHECK(check_batch_memory(job.setup, one, job.samples).error().message ==
        "pipeline 0 has no room for activations beside state");
}

TEST_CASE("encoders and the llm are on their device at once, in phases too", "[engine]") {
  SixSamples job;
  job.setup.job.train.microbatches = 1;
  const ParallelPlan plan = job.pipelines(1);
  const auto least_with = [&](const std::string& schedule) {
    job.setup.job.scheduler.schedule = schedule;
    return job.least_memory(plan);
  };
  const std::int64_t one_by_one = least_with("1f1b"), in_phases = least_with("three-phase");
  CHECK(in_phases == one_by_one);
  job.have(in_phases);
  CHECK(check_batch_memory(job.setup, plan, job.samples).ok());
  job.have(in_phases - 2);
  CHECK_FALSE(check_batch_memory(job.setup, plan, job.samples).ok());
}

TEST_CASE("nothing is said of a batch where costs or memory are not known", "[engine]") {
  SixSamples job;
  CHECK(check_batch_memory(job.setup, job.pipelines(1), job.samples).ok());
  job.have(0);
  CHECK(check_batch_memory(job.setup, job.pipelines(1), job.samples).ok());
}

TEST_CASE("what can be planned just so has room", "[engine][property]") {
  const auto* const exchange = GENERATE("off", "auto", "per-phase");
  SixSamples job{exchange};
  for (const ParallelPlan& plan : {job.own, job.pipelines(1), job.pipelines(2), job.pipelines(3)}) {
    job.have(job.least_memory(plan));
    CAPTURE(exchange, plan.pipelines.size());
    CHECK(check_batch_memory(job.setup, plan, job.samples).ok());
  }
}

TEST_CASE("of a batch without a plan the sample is named that has least room", "[engine][errors]") {
  SixSamples job;
  const ParallelPlan two = job.pipelines(2);
  job.samples[3].llm_tokens = 4000;
  const Error why{Errc::infeasible, "no room", "cluster.device_memory_gib", "raise it"};
  const auto named = [&] { return with_tight_sample(why, job.setup, two, job.samples); };
  CHECK(named() == why);  // Nothing is known of costs.
  std::int64_t bytes = std::int64_t{1} << 30;
  job.have(bytes);
  const auto roomy = tightest_sample(job.setup, two, job.samples);
  REQUIRE(roomy);
  CHECK(roomy->sample == 3);
  CHECK(roomy->filled() < 1);
  CHECK(roomy->bytes > 0);
  CHECK(roomy->room < static_cast<double>(bytes));  // State is there too.
  CHECK(
      named().message.starts_with("no room; of the batch's samples 's3' (4000 tokens) has least "
                                  "room: alone it keeps "));
  CHECK(named().where == "cluster.device_memory_gib");
  CHECK(named().fix == "raise it");
  while (tightest_sample(job.setup, two, job.samples)->filled() <= 1) job.have(bytes /= 2);
  CHECK(named().fix ==
        "raise it; sample 's3' is too large in any number of microbatches: data.max_seq_len = 3999 "
        "leaves it out, train.recompute = true has it keep less");
  CHECK_FALSE(rehearse(job.setup, two, job.samples).ok());
}

TEST_CASE("a sample has the room of the pipeline where it fills least", "[engine]") {
  SixSamples job;
  job.have(std::int64_t{1} << 30);
  // Apart, the llm has the room that the encoder's state takes where both are on a device.
  const std::vector<HandStage> together{{0, 0, {{"vision", {}}, {"llm", {}}}}};
  const std::vector<HandStage> apart{{1, 0, {{"vision", {}}}}, {2, 0, {{"llm", {}}}}};
  const auto filled = [&](const std::vector<std::vector<HandStage>>& pipelines) {
    const auto tight = tightest_sample(job.setup, job.laid_out(pipelines), job.samples);
    return tight ? tight->filled() : 0;
  };
  CHECK(filled({apart}) < filled({together}));
  CHECK(filled({together, apart}) == filled({apart}));
  CHECK(filled({apart, together}) == filled({apart}));
}

TEST_CASE("a layout is rehearsed by the job's own policy where samples in order have no room",
          "[engine]") {
  SixSamples job;
  job.samples[0].llm_tokens = job.samples[1].llm_tokens = 4000;  // One microbatch, in order.
  const ParallelPlan one = job.pipelines(1);
  job.have(job.least_memory(one) - 1);
  const auto fits = [&](const char* policy) {
    job.setup.job.balancer.policy = policy;
    return rehearse_as_trained(job.setup, one, job.samples).ok();
  };
  CHECK_FALSE(fits("in-order"));
  CHECK(fits("llm-only"));
  CHECK_FALSE(fits("a-plugins"));  // Nobody asks it here.
}

}  // namespace
}  // namespace troupe::engine
