#include "tests/bench/ablation_ranks.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <utility>

#include "engine/iteration/batch_work.hpp"
#include "engine/iteration/pipeline_speeds.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "engine/setup/job_setup.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/vocabulary/index.hpp"
#include "scheduler/cost/device_catalog.hpp"
#include "scheduler/cost/roofline.hpp"
#include "scheduler/cost/state_bytes.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "tests/bench/group_waits.hpp"
#include "tests/bench/padded_sounds.hpp"

namespace troupe::bench {

namespace {

using Json = nlohmann::json;
using LogNormal = std::lognormal_distribution<double>;

/// Of this mean and deviation; none where the task has no such thing.
std::optional<LogNormal> log_normal(const Json& task, const char* key) {
  if (!task.contains(key)) return std::nullopt;
  const double mean = task.at(key).at("mean").get<double>();
  const double ratio = task.at(key).at("deviation").get<double>() / mean;
  const double variance = std::log(1 + ratio * ratio);
  return LogNormal(std::log(mean) - variance / 2, std::sqrt(variance));
}

/// What examples of one task are made of.
struct Task {
  std::optional<LogNormal> image, audio_s, text;
  double aspect = 1;
};

std::int32_t rounded(double value) {
  return std::max(1, static_cast<std::int32_t>(std::lround(value)));
}

std::int32_t divided(std::int32_t rows, std::int32_t rate) { return (rows + rate - 1) / rate; }

/// Draws examples of all tasks at random. Only images beyond the bound are resized.
class Examples {
 public:
  Examples(const Json& table, const Json& model, const ModelGraph& graph, std::uint64_t seed)
      : random_(seed),
        vision_(graph.find("vision")),
        audio_(graph.find("audio")),
        patch_(table.at("patch").get<double>()),
        largest_image_(model.at("max_resolution").get<double>()),
        longest_audio_s_(table.at("longest").at("audio_s").get<double>()),
        positions_per_s_(table.at("positions_per_s").get<double>()),
        longest_text_(table.at("longest").at("text").get<std::int32_t>()),
        vision_rate_(model.at("downsample").at("vision").get<std::int32_t>()),
        audio_rate_(model.at("downsample").at("audio").get<std::int32_t>()) {
    std::vector<double> weights;
    for (const auto& [name, task] : table.at("tasks").items()) {
      weights.push_back(task.at("samples").get<double>());
      tasks_.push_back({log_normal(task, "image"), log_normal(task, "audio_s"),
                        log_normal(task, "text"),
                        task.contains("image") ? task.at("image").at("aspect").get<double>() : 1});
    }
    which_ = std::discrete_distribution<std::size_t>(weights.begin(), weights.end());
  }

  SampleShape draw(std::int64_t position) {
    Task& task = tasks_[which_(random_)];
    SampleShape sample;
    sample.position = position;
    if (task.image) {
      const double side = std::min((*task.image)(random_), largest_image_);
      const std::int32_t width = rounded(side / patch_);
      const std::int32_t height = rounded(side * task.aspect / patch_);
      const std::int32_t rows = width * height;
      sample.media.push_back({vision_, {{rows, rows, divided(rows, vision_rate_), height, width}}});
    }
    if (task.audio_s) {
      const double seconds = std::min((*task.audio_s)(random_), longest_audio_s_);
      const auto rows = static_cast<std::int32_t>(std::ceil(seconds * positions_per_s_));
      sample.media.push_back({audio_, {{2 * rows, rows, divided(rows, audio_rate_), 0, 0}}});
    }
    sample.trained_tokens = task.text ? std::min(rounded((*task.text)(random_)), longest_text_) : 1;
    sample.llm_tokens =
        sample.trained_tokens + sample.output_rows(vision_) + sample.output_rows(audio_);
    return sample;
  }

 private:
  std::mt19937_64 random_;
  std::vector<Task> tasks_;
  std::discrete_distribution<std::size_t> which_;
  ModuleId vision_, audio_;
  double patch_, largest_image_, longest_audio_s_, positions_per_s_;
  std::int32_t longest_text_, vision_rate_, audio_rate_;
};

/// One microbatch of these samples; of none, no microbatch.
MicrobatchList together(std::vector<std::int32_t> samples) {
  if (samples.empty()) return {};
  return {Microbatch{{Part{std::move(samples)}}}};
}

/// Each list together.
std::vector<MicrobatchList> each_together(std::vector<std::vector<std::int32_t>> samples) {
  std::vector<MicrobatchList> lists;
  for (auto& own : samples) lists.push_back(together(std::move(own)));
  return lists;
}

/// Has `costs` pad sounds. Returns what all ranks then compute for that.
double pad_sounds(const ParallelPlan& plan, std::span<const SampleShape> samples,
                  std::span<const MicrobatchList> lists, scheduler::SimulationCosts& costs) {
  double padding = 0;
  for (std::size_t g = 0; g < plan.module_groups.size(); ++g) {
    if (plan.module_groups[g].name != "audio") continue;
    const auto packed = costs.task_ms;
    costs.task_ms = padded_cost(plan, ModuleGroupId{g}, samples, packed);
    padding += padding_ms(plan, ModuleGroupId{g}, lists, costs.task_ms, packed);
  }
  return padding;
}

/// `padding`: milliseconds of all that ranks compute which are no work. Errors: as `simulate`.
Result<StepOfRanks> simulated(const ParallelPlan& plan, const IterationPlan& iteration,
                              const scheduler::SimulationCosts& costs, double padding) {
  scheduler::SimulationOptions options;
  options.record_timeline = true;
  const auto step = scheduler::simulate(plan, iteration, costs, options);
  if (!step.ok()) return step.error();
  const double step_ms = step.value().step_ms;
  const double wasted = padding / (step_ms * static_cast<double>(plan.devices.size()));
  return StepOfRanks{
      step_ms,
      100 * scheduler::RooflineOptions{}.compute_share * (1 - step.value().bubble - wasted),
      forward_ms(iteration, step.value())};
}

}  // namespace

Result<PaperCosts> paper_costs(const std::string& name, const Json& table) {
  const auto job = job::load_job("experiments/orchmllm/" + name + ".toml", {});
  if (!job.ok()) return job.error();
  const auto setup = engine::prepare(job.value().job);
  if (!setup.ok()) return setup.error();
  const auto device = scheduler::find_device(table.at("device").get<std::string>());
  if (!device.ok()) return device.error();
  auto network = engine::planned_network();
  network.gigabytes_per_s = table.at("network_gb_per_s").get<double>();
  const auto profile =
      engine::computed_profile(setup.value(), device.value(), {scheduler::Parallelism{}}, network);
  auto model = engine::cost_model(setup.value(), profile);
  if (!model.ok()) return std::move(model).error();
  return PaperCosts{std::move(model).value(), engine::prediction_of(setup.value(), profile.speeds)};
}

std::vector<Ablation> ablations() {
  return {{.name = "no phase balanced", .vision = false, .audio = false, .llm = false},
          {.name = "audio alone", .vision = false, .llm = false},
          {.name = "vision alone", .audio = false, .llm = false},
          {.name = "LLM alone", .vision = false, .audio = false},
          {.name = "all, node-wise off", .node_wise = false},
          {.name = "all, composition off", .composed = false},
          {.name = "all"}};
}

std::vector<Ablation> padded_ablations() {
  return {{.name = "sounds padded, no phase balanced",
           .vision = false,
           .audio = false,
           .llm = false,
           .padded_sounds = true},
          {.name = "sounds padded, both encoders dealt as packed", .padded_sounds = true},
          {.name = "sounds padded, both encoders dealt as padded",
           .padded_sounds = true,
           .vision_as_padded = true,
           .audio_as_padded = true},
          {.name = "sounds padded, each encoder by its own rule",
           .padded_sounds = true,
           .audio_as_padded = true}};
}

double forward_ms(const IterationPlan& iteration, const scheduler::SimulatedStep& step) {
  std::vector<double> ends(iteration.actions.size());
  for (const scheduler::SimulatedEvent& event : step.events) {
    const std::size_t device = event.device.index();
    if (iteration.actions[device][at(event.index)].kind == ActionKind::forward)
      ends[device] = std::max(ends[device], event.end_ms);
  }
  return std::accumulate(ends.begin(), ends.end(), 0.0) / static_cast<double>(ends.size());
}

Result<AblationRanks> AblationRanks::create(const PaperCosts& costs, const Json& table,
                                            const Json& model, std::size_t ranks,
                                            std::size_t mini_batch, std::uint64_t seed) {
  Examples examples(table, model, costs.model.graph(), seed);
  std::vector<SampleShape> samples;
  for (std::size_t s = 0; s < ranks * mini_batch; ++s)
    samples.push_back(examples.draw(static_cast<std::int64_t>(s)));
  AblationRanks made(costs, table, ranks, std::move(samples));
  auto summed = scheduler::SampleSums(costs.model, made.samples_).of(made.layout(true, ranks));
  if (!summed.ok()) return std::move(summed).error();
  made.sample_costs_ = std::move(summed).value();
  return made;
}

ParallelPlan AblationRanks::layout(bool composed, std::size_t per_node) const {
  ParallelPlan plan;
  plan.model = costs_->model.graph();
  auto groups = scheduler::joined_encoders(plan.model);
  groups.push_back({plan.model.llm()});
  if (!composed) {
    groups.clear();
    for (std::size_t m = 0; m < plan.model.modules.size(); ++m) groups.push_back({ModuleId{m}});
  }
  for (const auto& modules : groups)
    plan.module_groups.push_back({scheduler::group_name(plan.model, modules), modules});
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    Pipeline& pipeline = plan.pipelines.emplace_back();
    plan.devices.push_back({NodeId{rank / per_node}, static_cast<std::int32_t>(rank % per_node)});
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const ReplicaId replica{plan.replicas.size()};
      pipeline.replicas.push_back(replica);
      plan.replicas.push_back({ModuleGroupId{g}, PipelineId{rank}, {StageId{plan.stages.size()}}});
      Stage& stage = plan.stages.emplace_back(Stage{replica, {}, {DeviceId{rank}}});
      for (const ModuleId module : groups[g])
        stage.runs.push_back(
            {module, {0, static_cast<std::int32_t>(plan.model.at(module).layers.size())}});
    }
  }
  return plan;
}

std::vector<std::vector<std::int32_t>> AblationRanks::drawn() const {
  std::vector<std::vector<std::int32_t>> own(ranks_);
  const std::size_t mini_batch = samples_.size() / ranks_;
  for (std::size_t s = 0; s < samples_.size(); ++s)
    own[s / mini_batch].push_back(static_cast<std::int32_t>(s));
  return own;
}

Result<std::vector<MicrobatchList>> AblationRanks::dealt(const engine::PhaseWork& llm) const {
  std::vector<balancer::Workload> weights;
  for (const double work : llm.samples) weights.push_back({work, work});
  auto deal = engine::deal_samples("work", weights, std::vector<double>(ranks_, 1));
  if (!deal.ok()) return std::move(deal).error();
  return each_together(std::move(deal).value());
}

Result<std::vector<MicrobatchList>> AblationRanks::microbatches(
    const Ablation& ablation, const ParallelPlan& plan,
    std::span<const engine::PhaseWork> works) const {
  const std::size_t group_count = plan.module_groups.size();
  const auto own = drawn();
  const auto as_drawn = each_together(own);
  auto of_llm = ablation.llm ? dealt(works.back()) : Result<std::vector<MicrobatchList>>(as_drawn);
  if (!of_llm.ok()) return std::move(of_llm).error();
  std::vector<engine::LlmCut> cuts;
  for (std::size_t rank = 0; rank < ranks_; ++rank)
    cuts.push_back(
        {plan.pipelines[rank].replicas.back(), {of_llm.value()[rank], of_llm.value()[rank]}});
  // One node for all: none is nearer than another.
  const auto spread_on = layout(ablation.composed, ablation.node_wise ? per_node_ : ranks_);
  std::vector<MicrobatchList> all(plan.replicas.size());
  for (std::size_t g = 0; g < group_count; ++g) {
    const std::string& name = plan.module_groups[g].name;
    const bool balanced =
        (ablation.vision && name == "vision") || (ablation.audio && name == "audio");
    const bool as_padded = name == "vision" ? ablation.vision_as_padded : ablation.audio_as_padded;
    auto lists = g + 1 == group_count ? of_llm.value() : as_drawn;
    if (balanced && as_padded) {
      auto even = deal_for_paddings(plan.module_groups[g].modules.front(), samples_, own);
      if (!even.ok()) return std::move(even).error();
      lists = each_together(std::move(even).value());
    } else if (balanced) {
      auto spread = engine::spread_within_rooms(spread_on, ModuleGroupId{g}, cuts, works[g], {});
      if (!spread.ok()) return std::move(spread).error();
      lists = std::move(spread).value();
    }
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      all[plan.pipelines[rank].replicas[g].index()] = lists[rank];
  }
  return all;
}

Result<AblatedStep> AblationRanks::step(const Ablation& ablation) const {
  const auto plan = layout(ablation.composed, per_node_);
  const auto& prediction = costs_->prediction;
  const auto works = engine::phase_works(plan, SampleUnits(samples_, {}), &sample_costs_,
                                         scheduler::bytes_per_element(prediction.dtype),
                                         engine::inside_node_share(prediction.speeds));
  auto lists = microbatches(ablation, plan, works);
  if (!lists.ok()) return std::move(lists).error();
  AblatedStep made;
  for (std::size_t g = 0; ablation.composed && g + 1 < plan.module_groups.size(); ++g)
    (plan.module_groups[g].name == "vision" ? made.vision_far_rows : made.audio_far_rows) =
        engine::far_rows(plan, ModuleGroupId{g}, lists.value(), works[g]).planned;
  auto costs = scheduler::predicted_costs(plan, sample_costs_, prediction);
  costs.activation_bytes = nullptr;  // Nobody asks for memory.
  const double padding =
      ablation.padded_sounds ? pad_sounds(plan, samples_, lists.value(), costs) : 0;
  scheduler::IterationInput input;
  input.samples = samples_;
  input.microbatches = std::move(lists).value();
  input.schedule = "three-phase";
  input.task_cost = costs.task_ms;
  input.message_cost = scheduler::message_costs(plan, costs);
  input.routes.pin = Route::direct;  // All stages have one device.
  auto iteration = scheduler::plan_iteration(plan, std::move(input));
  if (!iteration.ok()) return std::move(iteration).error();
  for (const bool waits : {false, true}) {
    if (waits) wait_in_groups(plan, group_size_, iteration.value());
    const auto ran = simulated(plan, iteration.value(), costs, padding);
    if (!ran.ok()) return ran.error();
    (waits ? made.in_groups : made.alone) = ran.value();
  }
  return made;
}

}  // namespace troupe::bench
