#include "engine/setup/job_setup.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/iteration/stated_costs.hpp"
#include "engine/setup/source_nodes.hpp"
#include "models/family/registry.hpp"
#include "models/family/size_problems.hpp"
#include "models/graph_problems.hpp"
#include "runtime/schedules/registry.hpp"
#include "scheduler/cost/recomputed_profile.hpp"
#include "scheduler/cost/state_bytes.hpp"

namespace troupe::engine {

namespace {

/// Virtual steps over which a job measured in tokens decays.
constexpr std::int64_t kTokenScheduleSteps = 1'000'000;

const ModuleConfig* find_config(const job::Job& job, const std::string& name) {
  for (const auto& module : job.modules)
    if (module.name == name) return &module;
  return nullptr;
}

/// What the media encoders take.
void read_media_inputs(const job::Job& job, data::DataOptions& options) {
  options.vision.clear();
  options.audio.clear();
  for (const auto& module : job.modules) {
    const auto media = models::media_input(module);
    if (media.medium == Medium::image) options.vision.push_back({module.name, media.vision});
    if (media.medium == Medium::audio) options.audio.push_back({module.name, media.audio});
  }
}

/// Models that the data part cannot feed.
std::vector<Error> feeding_problems(const job::Job& job) {
  std::vector<Error> problems;
  for (const auto& module : job.modules) {
    const auto family = models::family_of(module);
    if (!family) continue;  // Told by who builds the graph.
    if (const auto few = models::too_few_tokens(module, family.value()->sizes(module.config)))
      problems.push_back({Errc::invalid_argument, few->key + " " + few->message,
                          "modules." + module.name + ".config." + few->key, few->fix});
  }
  return problems;
}

/// Between input and weight gradients a stage keeps what both need, all that was run again.
std::vector<Error> recomputation_problems(const job::Job& job) {
  const auto& name = job.scheduler.schedule;
  if (!job.train.recompute || !scheduler::splits_weight_gradient(schedules::find_schedule(name)))
    return {};
  return {{Errc::invalid_argument,
           "train.recompute: '" + name +
               "' has weight gradients wait, and what they need with them: nothing would be saved",
           "train.recompute",
           "choose a schedule that takes both gradients at once: scheduler.schedule = \"1f1b\""}};
}

/// Without phases a backward soon follows its forward, and a device would move what it is about to
/// need.
std::vector<Error> offload_problems(const job::Job& job) {
  const auto& name = job.scheduler.schedule;
  const bool parameters = job.scheduler.offloads("parameters");
  if ((!parameters && !job.scheduler.offloads("activations")) ||
      scheduler::has_phases(schedules::find_schedule(name)))
    return {};
  return {
      {Errc::invalid_argument,
       "scheduler.offload_encoders: '" + name + "' has no phases in which an encoder's " +
           (parameters ? "parameters" : "activations") + " are of no use to it",
       "scheduler.offload_encoders",
       "write \"moments\" or \"off\", or choose scheduler.schedule = \"three-phase\" or \"dip\""}};
}

SumOrder sums_of(const job::Job& job) {
  if (job.cluster.sums == "nccl") return calls_in(job.train.dtype);
  // What is still open when a job is prepared, as for commands that plan nothing, is messages.
  return job.cluster.sums == "nccl-chain" ? SumOrder::nccl_chain : SumOrder::chain;
}

data::DataOptions data_options(const job::Job& job) {
  data::DataOptions options;
  for (const auto& source : job.data.sources)
    // Of a source on some nodes others read the list alone.
    options.sources.push_back(
        {source.json, source.media, source.format, true, !source.nodes.empty()});
  options.min_pixels = job.data.min_pixels;
  options.max_pixels = job.data.max_pixels;
  options.pad_audio = job.data.pad_audio;
  options.max_seq_len = job.data.max_seq_len;
  options.seed = job.job.seed;
  options.shuffle = job.data.shuffle;
  read_media_inputs(job, options);
  return options;
}

}  // namespace

SumOrder calls_in(Dtype dtype) {
  return dtype == Dtype::fp64 ? SumOrder::nccl_chain : SumOrder::nccl;
}

std::vector<Error> setup_problems(const job::Job& job) {
  auto problems = models::graph_problems(job.modules);
  for (auto& found : {feeding_problems(job), data::problems_of(data_options(job)),
                      recomputation_problems(job), offload_problems(job)})
    for (const auto& problem : found)
      // A size that breaks both the model and its data is told once.
      if (std::none_of(problems.begin(), problems.end(), [&](const Error& told) {
            return (told.where + ".").starts_with(problem.where + ".");
          }))
        problems.push_back(problem);
  return problems;
}

Result<scheduler::CostModel> cost_model(const JobSetup& setup, const scheduler::Profile& profile) {
  const auto bytes = scheduler::bytes_per_element(setup.job.train.dtype);
  auto own = setup.job.train.recompute ? scheduler::with_recomputation(setup.model, profile, bytes)
                                       : profile;
  return scheduler::CostModel::create(
      setup.model, with_stated_costs(setup.model, setup.modules(), std::move(own)));
}

Result<JobSetup> prepare(const job::Job& job) {
  if (auto problems = setup_problems(job); !problems.empty()) return std::move(problems.front());
  JobSetup setup;
  setup.job = job;
  setup.model = models::build_graph(job.modules).value();
  setup.model.sums = sums_of(job);
  for (ModuleSpec& module : setup.model.modules) {
    const bool encodes = module.kind != ModuleKind::llm;
    module.moments_in_host = job.scheduler.offloads("moments") && encodes && !module.freeze;
    module.parameters_in_host = job.scheduler.offloads("parameters") && encodes;
  }
  note_held_bytes(job.modules, setup.model);
  setup.parameters = models::list_parameters(job.modules, setup.model);
  setup.data = data_options(job);
  setup.layers.dtype = models::to_torch(job.train.dtype);
  setup.layers.seed = job.job.seed;
  setup.layers.recompute = job.train.recompute;
  setup.adamw = {job.optimizer.beta1, job.optimizer.beta2, job.optimizer.eps,
                 job.optimizer.weight_decay};
  for (const auto& module : setup.model.modules) {
    const auto& own = find_config(job, module.name)->lr;
    setup.learning_rate_scales.push_back(own ? *own / job.optimizer.lr : 1);
  }
  return setup;
}

void use_sums(JobSetup& setup, const std::string& sums) {
  setup.job.cluster.sums = sums;
  setup.model.sums = sums_of(setup.job);
  if (!setup.costs) return;
  auto costs = std::make_shared<PlanningCosts>(*setup.costs);  // Others may plan by the old ones.
  costs->model.set_sums(setup.model.sums);
  setup.costs = std::move(costs);
}

scheduler::DeviceSpeeds speeds_for(const job::Cluster& cluster, scheduler::DeviceSpeeds speeds) {
  if (cluster.local_nodes == cluster.nodes) speeds.network = speeds.machine;
  return speeds;
}

scheduler::PredictionOptions prediction_of(const JobSetup& setup,
                                           const scheduler::DeviceSpeeds& speeds) {
  scheduler::PredictionOptions options;
  options.dtype = setup.job.train.dtype;
  options.speeds = speeds_for(setup.job.cluster, speeds);
  return options;
}

Result<std::shared_ptr<const PlanningCosts>> planning_costs(const JobSetup& setup,
                                                            const scheduler::Profile& profile,
                                                            Bytes device_memory) {
  auto model = cost_model(setup, profile);
  if (!model.ok()) return std::move(model).error();
  return std::make_shared<const PlanningCosts>(
      PlanningCosts{std::move(model).value(), prediction_of(setup, profile.speeds), device_memory});
}

std::optional<Route> pinned_route(const job::Scheduler& scheduler) {
  for (std::size_t route = 0; route < kRouteNames.size(); ++route)
    if (scheduler.boundary == kRouteNames[route]) return static_cast<Route>(route);
  return std::nullopt;
}

data::MediaModules media_modules(const JobSetup& setup) {
  data::MediaModules modules;
  for (const auto& module : setup.job.modules) {
    const auto medium = models::media_input(module).medium;
    if (medium == Medium::image) modules.vision.push_back(setup.model.find(module.name));
    if (medium == Medium::audio) modules.audio.push_back(setup.model.find(module.name));
  }
  return modules;
}

data::WantedParts wanted_parts(const OrderedSample& sample, const data::MediaModules& modules) {
  const auto wanted = [&](const std::vector<ModuleId>& encoders) {
    data::EncoderSet set = 0;
    for (std::size_t i = 0; i < encoders.size(); ++i)
      if (std::find(sample.media.begin(), sample.media.end(), encoders[i]) != sample.media.end())
        set |= data::EncoderSet{1} << i;
    return set;
  };
  return {wanted(modules.vision), wanted(modules.audio), sample.text};
}

MicrobatchingOptions microbatching_options(const JobSetup& setup) {
  const job::Job& job = setup.job;
  return {job.balancer.dealing,
          job.balancer.exchange,
          job.balancer.items,
          job.balancer.policy,
          schedules::find_schedule(job.scheduler.schedule),
          job.train.microbatches,
          job.job.seed,
          job.balancer.evaluations,
          job.scheduler.max_in_flight,
          job.balancer.adaptive_correction,
          job.scheduler.offloads("activations"),
          pinned_route(job.scheduler)};
}

BatchPlannerOptions planner_options(const JobSetup& setup, data::Epochs epochs,
                                    EpochNumber epoch_number) {
  const job::Job& job = setup.job;
  BatchPlannerOptions options;
  options.epochs = std::move(epochs);
  options.global_batch_size = job.train.global_batch_size;
  options.max_seq_len = job.data.max_seq_len;
  options.epoch_number = epoch_number;
  options.costs = setup.costs;
  options.sources = {setup.data, options.epochs, source_nodes(job)};
  options.flops = std::make_shared<scheduler::ModelFlops>(setup.model, setup.modules());
  options.microbatching = microbatching_options(setup);
  return options;
}

TrainingLength::TrainingLength(const job::Job& job, const data::Epochs& epochs)
    : duration_(job.train.duration), peak_(job.optimizer.lr) {
  const std::int64_t batch = job.train.global_batch_size;
  switch (duration_.unit) {
    case job::DurationUnit::steps: steps_ = duration_.amount; break;
    case job::DurationUnit::epochs: steps_ = epochs.batches_before(duration_.amount, batch); break;
    case job::DurationUnit::samples: steps_ = epochs.batches_for(duration_.amount, batch); break;
    case job::DurationUnit::tokens: steps_ = 0; break;
  }
  const auto& optimizer = job.optimizer;
  schedule_ =
      state::make_schedule(optimizer.lr, optimizer.min_lr, optimizer.warmup_steps,
                           steps_ > 0 ? steps_ : optimizer.warmup_steps + 1 + kTokenScheduleSteps);
}

bool TrainingLength::reached(std::int64_t step, TokenCount tokens) const {
  return steps_ > 0 ? step >= steps_ : tokens >= duration_.amount;
}

double TrainingLength::learning_rate(std::int64_t step, TokenCount tokens_before) const {
  std::int64_t place = step;
  if (steps_ == 0 && step > schedule_.warmup_steps) {
    const double share =
        std::min(1.0, static_cast<double>(tokens_before) / static_cast<double>(duration_.amount));
    place = schedule_.warmup_steps + 1 +
            static_cast<std::int64_t>(share * static_cast<double>(kTokenScheduleSteps));
  }
  return peak_ * state::learning_rate_factor(schedule_, place);
}

Status check_bad_samples(const job::Job& job, std::int64_t bad_count, std::int64_t record_count) {
  const double allowed = job.data.max_bad_fraction * static_cast<double>(record_count);
  if (static_cast<double>(bad_count) <= allowed) return Done{};
  return Error{Errc::bad_data,
               std::to_string(bad_count) + " bad samples in a data set of " +
                   std::to_string(record_count) + ", more than data.max_bad_fraction = " +
                   std::to_string(job.data.max_bad_fraction) + " allows",
               (job.job.run_dir / "bad_samples.jsonl").string(),
               "repair or remove the samples listed there, or raise data.max_bad_fraction"};
}

namespace {

SampleReport report_of(const data::BadSample& bad) {
  SampleReport report;
  report.id = bad.id;
  report.bad = true;
  report.bad_kind = static_cast<std::uint8_t>(bad.kind);
  report.bad_file = bad.file;
  report.bad_reason = bad.reason;
  report.bad_fix = bad.fix;
  report.where = bad.where;
  return report;
}

}  // namespace

BatchReport report_on(NodeId node, const BatchOrder& order,
                      const std::vector<data::DecodeOutcome>& outcomes, const JobSetup& setup,
                      double decode_ms) {
  BatchReport report{node, order.epoch_number, order.batch, {}, decode_ms};
  const auto modules = media_modules(setup);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    SampleReport sample;
    if (const auto* bad = std::get_if<data::BadSample>(&outcomes[i])) {
      sample = report_of(*bad);
      sample.position = order.samples[i].position;
      report.samples.push_back(std::move(sample));
      continue;
    }
    sample.position = order.samples[i].position;
    const auto& decoded = std::get<data::DecodedSample>(outcomes[i]);
    sample.id = decoded.id;
    sample.media_known = order.samples[i].media;
    sample.media = data::shape_of(decoded, setup.data, modules).media;
    sample.has_text = order.samples[i].text;
    if (sample.has_text) {
      const auto& text = decoded.text;
      sample.where = decoded.where;
      sample.text_tokens =
          static_cast<TokenCount>(text.tokens.size()) - text.image_markers - text.audio_markers;
      sample.trained_tokens = decoded.trained_tokens;
      sample.markers = data::markers_of(text, modules);
    }
    report.samples.push_back(std::move(sample));
  }
  return report;
}

BatchReport report_lengths(NodeId node, const BatchOrder& order,
                           const std::vector<data::MeasureOutcome>& outcomes, double decode_ms) {
  BatchReport report{node, order.epoch_number, order.batch, {}, decode_ms, true};
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    SampleReport sample;
    if (const auto* bad = std::get_if<data::BadSample>(&outcomes[i])) {
      sample = report_of(*bad);
    } else {
      const auto& shape = std::get<SampleShape>(outcomes[i]);
      sample.id = shape.id;
      sample.media_known = order.samples[i].media;
      sample.media = shape.media;
      sample.has_text = true;
      sample.text_tokens = shape.llm_tokens;
      for (const auto& media : shape.media) sample.text_tokens -= shape.output_rows(media.module);
      sample.trained_tokens = shape.trained_tokens;
      sample.markers = shape.markers;
    }
    sample.position = order.samples[i].position;
    report.samples.push_back(std::move(sample));
  }
  return report;
}

}  // namespace troupe::engine
