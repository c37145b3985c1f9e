// What the simulator expects of global batches of a job, one JSON line per batch; run by
// prediction_bench.py, which compares it with a run.
//
// Arguments: PROFILE FIRST COUNT JOB.toml [key=value ...]. The layout is one pipeline by hand. With
// `shapes` for PROFILE the lines are the samples of a batch, as model_peer.py reads them.

#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/profile_data.hpp"
#include "engine/profiling/profile_run.hpp"
#include "engine/setup/job_setup.hpp"
#include "runtime/job/load_job.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/simulate/predicted_costs.hpp"

namespace troupe {
namespace {

Result<scheduler::SimulatedStep> predict(const ParallelPlan& plan, const engine::JobSetup& setup,
                                         const scheduler::CostModel& model,
                                         const scheduler::Profile& profile,
                                         std::vector<SampleShape> samples) {
  scheduler::PredictionOptions options;
  options.dtype = setup.job.train.dtype;
  options.speeds = profile.speeds;
  auto costs = scheduler::predicted_costs(plan, model, samples, options);
  if (!costs.ok()) return std::move(costs).error();
  scheduler::IterationInput input;
  input.microbatches =
      scheduler::assign_by_count(plan, static_cast<std::int32_t>(samples.size()),
                                 static_cast<std::int32_t>(setup.job.train.microbatches));
  input.samples = std::move(samples);
  input.schedule = setup.job.scheduler.schedule;
  const auto iteration = scheduler::plan_iteration(plan, std::move(input));
  if (!iteration.ok()) return iteration.error();
  return scheduler::simulate(plan, iteration.value(), costs.value());
}

/// `{"grids": [[h, w]...], "frames": [n...], "tokens": n, "trained": n}`.
nlohmann::json sample_json(const ModelGraph& graph, const SampleShape& sample) {
  nlohmann::json grids = nlohmann::json::array(), frames = nlohmann::json::array();
  for (const auto& media : sample.media)
    for (const auto& item : media.items)
      if (graph.at(media.module).name == "vision")
        grids.push_back({item.grid_height, item.grid_width});
      else
        frames.push_back(item.input_rows);
  return {{"grids", grids},
          {"frames", frames},
          {"tokens", sample.llm_tokens},
          {"trained", sample.trained_tokens}};
}

Status print_shapes(const engine::JobSetup& setup, std::int64_t first, std::int64_t count) {
  auto batches = engine::batch_shapes(setup, first, count);
  if (!batches.ok()) return batches.error();
  for (const auto& batch : batches.value()) {
    nlohmann::json samples = nlohmann::json::array();
    for (const auto& sample : batch) samples.push_back(sample_json(setup.model, sample));
    std::cout << samples << std::endl;
  }
  return Done{};
}

Status run(int count, char** words) {
  if (count < 5)
    return Error{Errc::invalid_argument, "four arguments are needed", {}, "see the first lines"};
  const auto loaded = job::load_job(words[4], {words + 5, words + count});
  if (!loaded.ok()) return loaded.error();
  const auto setup = engine::prepare(loaded.value().job);
  if (!setup.ok()) return setup.error();
  if (std::string(words[1]) == "shapes")
    return print_shapes(setup.value(), std::stoll(words[2]), std::stoll(words[3]));
  engine::ProfileOptions options;
  options.file = words[1];
  const auto obtained = engine::obtain_profile(setup.value(), options);
  if (!obtained.ok()) return obtained.error();
  const auto& profile = obtained.value().profile;
  const auto model = scheduler::CostModel::create(setup.value().model, profile);
  if (!model.ok()) return model.error();
  const auto plan = engine::make_parallel_plan(setup.value());
  if (!plan.ok()) return plan.error();
  auto batches = engine::batch_shapes(setup.value(), std::stoll(words[2]), std::stoll(words[3]));
  if (!batches.ok()) return batches.error();
  for (auto& batch : batches.value()) {
    const auto step =
        predict(plan.value(), setup.value(), model.value(), profile, std::move(batch));
    if (!step.ok()) return step.error();
    std::cout << nlohmann::json{{"step_ms", step.value().step_ms},
                                {"stage_ms", step.value().stage_ms}}
              << std::endl;
  }
  return Done{};
}

}  // namespace
}  // namespace troupe

int main(int count, char** words) {
  if (count == 1) {
    std::cerr << "nothing to measure alone: prediction_bench.py runs this program\n";
    return 77;  // scripts/bench runs every program, and knows this code.
  }
  const auto done = troupe::run(count, words);
  if (done.ok()) return 0;
  std::cerr << to_string(done.error()) << '\n';
  return 1;
}
