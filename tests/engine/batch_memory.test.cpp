#include "tests/torch_catch.hpp"

#include "engine/layout/batch_memory.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/iteration/microbatching.hpp"
#include "engine/iteration/pipeline_speeds.hpp"
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

  /// So many pipelines, and such in which stages of the llm have a device's room together, with the
  /// encoder, without it, and the last one with it alone.
  std::vector<ParallelPlan> layouts() const {
    std::vector<ParallelPlan> plans{own, pipelines(1), pipelines(2), pipelines(3)};
    const std::vector<std::vector<std::int32_t>> nodes{{0, 0, 0}, {0, 1, 1}, {1, 0, 1}};
    for (const auto& node : nodes) {
      const std::vector<HandStage> stages{{node[0], 0, {{"vision", {}}}},
                                          {node[1], 0, {{"llm", LayerRange{0, 2}}}},
                                          {node[2], 0, {{"llm", LayerRange{2, 4}}}}};
      plans.push_back(laid_out({stages}));
    }
    return plans;
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

  /// Bytes of a device that are just enough for what is asked then.
  template <class Fits>
  std::int64_t least_memory_where(Fits fits) {
    std::int64_t too_few = 0, enough = std::int64_t{1} << 30;
    while (enough - too_few > 1) {
      const std::int64_t bytes = (too_few + enough) / 2;
      have(bytes);
      (fits() ? enough : too_few) = bytes;
    }
    return enough;
  }

  /// The same for a plan of the samples.
  std::int64_t least_memory(const ParallelPlan& plan) {
    return least_memory_where([&] { return rehearse(setup, plan, samples).ok(); });
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
  for (const ParallelPlan& plan : job.layouts()) {
    job.have(job.least_memory(plan));
    CAPTURE(exchange, plan.pipelines.size(), plan.stages.size());
    CHECK(check_batch_memory(job.setup, plan, job.samples).ok());
  }
}

TEST_CASE("of batches that are not cut a layout has room for those that it has a plan for",
          "[engine][property]") {
  const auto [schedule, offloads] = GENERATE(table<std::string, std::string>(
      {{"1f1b", "off"}, {"three-phase", "off"}, {"three-phase", "activations"}}));
  SixSamples job;
  job.setup.job.train.microbatches = 1;  // Then the look knows all that a plan does.
  job.setup.job.scheduler.offload_encoders = offloads;
  job.setup.job.scheduler.schedule = schedule;
  for (const ParallelPlan& plan : job.layouts()) {
    const std::int64_t least = job.least_memory(plan);
    for (const std::int64_t bytes : {least / 2, least - 2, least, 2 * least}) {
      job.have(bytes);
      CAPTURE(offloads, schedule, plan.pipelines.size(), plan.stages.size(), least, bytes);
      CHECK(check_batch_memory(job.setup, plan, job.samples).ok() ==
            rehearse(job.setup, plan, job.samples).ok());
    }
  }
}

/// Two with a picture that takes far longer than all text, and two without.
std::vector<SampleShape> two_of_four_with_pictures(const ModelGraph& model) {
  constexpr std::int32_t kRows = 1 << 20;
  std::vector<SampleShape> samples;
  for (const TokenCount tokens : {400, 400, 100, 500}) {
    SampleShape sample;
    sample.position = std::ssize(samples);
    sample.id = "s" + std::to_string(sample.position);
    sample.llm_tokens = tokens;
    sample.trained_tokens = 8;
    if (samples.size() < 2)
      sample.media.push_back({model.find("vision"), {{kRows, kRows, 4, 2, 8}}});
    samples.push_back(std::move(sample));
  }
  return samples;
}

TEST_CASE("a batch that may be dealt in two ways has room where it has by one of them",
          "[engine]") {
  // By hand: pipelines share encoders and llm evenly where each has a picture; then one has 900 of
  // the 1,400 tokens. By the llm alone 800 are the most, of both pictures.
  std::map<std::string, std::int64_t> least;
  for (const char* const word : {"per-phase", "auto"}) {
    const std::string exchange = word;
    SixSamples job{exchange};
    job.setup.job.train.microbatches = 1;
    const ParallelPlan plan = job.pipelines(2);
    const auto samples = two_of_four_with_pictures(job.setup.model);
    least[exchange] =
        job.least_memory_where([&] { return check_batch_memory(job.setup, plan, samples).ok(); });
    const auto dealt = Microbatching(plan, microbatching_options(job.setup), job.setup.costs)
                           .deal({1, 0, samples}, PipelineSpeeds(2))
                           .value();
    using Groups = std::vector<std::vector<std::int32_t>>;
    CHECK((exchange == "auto" ? dealt.by_phase : dealt.pipelines) == Groups{{2, 3}, {0, 1}});
    if (exchange == "auto") CHECK(dealt.pipelines == Groups{{0, 2}, {1, 3}});
  }
  CHECK(least["auto"] == least["per-phase"]);
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
