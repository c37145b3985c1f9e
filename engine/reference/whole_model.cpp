#include "engine/reference/whole_model.hpp"

#include <chrono>
#include <thread>

#include "engine/iteration/skipped_steps.hpp"
#include "engine/setup/initial_layers.hpp"
#include "engine/setup/save_policy.hpp"

namespace troupe::engine {

Result<WholeModel> WholeModel::create(const JobSetup& setup) {
  WholeModel whole;
  InitialLayers initial(setup);
  for (std::size_t m = 0; m < setup.model.modules.size(); ++m) {
    const ModuleSpec& spec = setup.model.modules[m];
    auto& layers = whole.layers_.emplace_back();
    auto options = setup.layers;
    options.trainable = !spec.freeze;
    options.threads = static_cast<int>(std::thread::hardware_concurrency());
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
      auto layer = initial.make({ModuleId{m}, static_cast<std::int32_t>(i)}, options);
      if (!layer.ok()) return std::move(layer).error();
      layers.push_back(std::move(layer).value());
    }
  }
  return whole;
}

std::vector<models::Parameter> WholeModel::all_parameters() {
  std::vector<models::Parameter> all;
  for (auto& module : layers_)
    for (auto& layer : module)
      all.insert(all.end(), layer->parameters().begin(), layer->parameters().end());
  return all;
}

std::map<std::string, at::Tensor> WholeModel::parameters() {
  std::map<std::string, at::Tensor> parameters;
  for (const auto& parameter : all_parameters())
    parameters.emplace(parameter.name, parameter.value.detach());
  return parameters;
}

Status load_resumed(const ReferenceOptions& options, const ReferenceState& state) {
  if (options.resume.is_start()) return Done{};
  const auto checkpoint = state::Checkpoint::open(options.resume.folder);
  return checkpoint.ok() ? state.load(checkpoint.value()) : Status(checkpoint.error());
}

Result<BatchSource> BatchSource::open(const JobSetup& setup, const DataOrder& order) {
  auto dataset = data::Dataset::open(setup.data);
  if (!dataset.ok()) return std::move(dataset).error();
  data::Epochs epochs =
      order.epochs.empty() ? data::Epochs(dataset.value().size()) : data::Epochs(order.epochs);
  return BatchSource(setup, std::move(dataset).value(), std::move(epochs));
}

data::BatchSpan BatchSource::turn_to(std::int64_t batch) {
  const auto span = epochs_.span(batch, setup_.job.train.global_batch_size);
  if (span.epoch == epoch_) return span;
  epoch_ = span.epoch;
  order_ = epochs_.order(setup_.data, epoch_);
  return span;
}

std::vector<data::MeasureOutcome> BatchSource::measure(std::int64_t batch) {
  const auto span = turn_to(batch);
  std::vector<data::MeasureOutcome> outcomes;
  for (std::int64_t position = span.begin; position < span.end; ++position)
    outcomes.push_back(data::measure_sample(dataset_,
                                            dataset_[order_[static_cast<std::size_t>(position)]],
                                            setup_.data, media_modules(setup_)));
  return outcomes;
}

ReferenceBatch BatchSource::read(std::int64_t batch) {
  ReferenceBatch read;
  read.span = turn_to(batch);
  for (std::int64_t position = read.span.begin; position < read.span.end; ++position) {
    const std::int64_t index = order_[static_cast<std::size_t>(position)];
    auto outcome = data::decode_sample(dataset_, dataset_[index], setup_.data);
    if (auto* bad = std::get_if<data::BadSample>(&outcome)) {
      read.dropped.push_back({position, std::move(*bad)});
    } else {
      auto& sample = std::get<data::DecodedSample>(outcome);
      sample.position = epochs_.places_before(epoch_) + position;
      read.samples.push_back(std::move(sample));
    }
  }
  return read;
}

std::vector<SampleShape> ReferenceLoop::shapes_of(const ReferenceBatch& batch) const {
  std::vector<SampleShape> shapes;
  for (const auto& sample : batch.samples)
    shapes.push_back(data::shape_of(sample, setup_.data, media_modules(setup_)));
  return shapes;
}

Status ReferenceLoop::save(const JobProgress& progress,
                           const std::function<ReferenceState()>& state) {
  auto saved = state().save(setup_, progress, options_.build, options_.resolved_job);
  if (options_.on_save) options_.on_save(progress.step, saved);
  if (!saved.ok()) return std::move(saved).error();
  return Done{};
}

Status ReferenceLoop::run(const Step& step, const std::function<ReferenceState()>& state) {
  const job::Job& job = setup_.job;
  const std::int64_t records = source_.epochs().newest_count();
  const TrainingLength length(job, source_.epochs());
  const scheduler::ModelFlops flops(setup_.model, setup_.modules());
  JobProgress progress = options_.resume.progress;
  progress.data = options_.data;
  TokenCount& tokens = progress.tokens;
  SkippedSteps skipped(job.train.max_nonfinite_in_a_row, records, progress.skipped);
  std::map<std::string, std::int64_t> bad;
  for (const auto& [id, batch] : progress.bad) bad.emplace(id, batch);
  auto last_save = std::chrono::steady_clock::now();
  std::int64_t saved_step = progress.step;
  if (progress.step > 0 && length.reached(progress.step, tokens)) return Done{};
  for (std::int64_t number = progress.step + 1;; ++number) {
    if (options_.stop && options_.stop->load() && progress.step > saved_step)
      if (auto saved = save(progress, state); !saved.ok()) return saved;
    if (options_.stop && options_.stop->load())
      return Error{Errc::cancelled, "stopped before step " + std::to_string(number), {}, {}};
    const auto begin = std::chrono::steady_clock::now();
    const ReferenceBatch batch = source_.read(number - 1);
    if (auto done = folder_.write_dropped(batch.dropped, batch.span.epoch); !done.ok()) return done;
    if (auto done = check_bad_samples(job, folder_.bad_count(), records); !done.ok()) return done;
    const StepPolicy policy{length.learning_rate(number, tokens), job.optimizer.max_grad_norm};
    auto result = step(number, batch, policy);
    if (!result.ok()) return std::move(result).error();
    const StepResult& done = result.value();
    tokens += done.tokens;
    observe::StepMetrics metrics;
    metrics.step = number;
    metrics.loss = done.outcome.loss;
    metrics.auxiliary_losses = done.outcome.auxiliary;
    metrics.lr = policy.learning_rate;
    metrics.grad_norm = done.outcome.grad_norm;
    metrics.samples = static_cast<std::int64_t>(done.ids.size());
    metrics.tokens = done.tokens;
    metrics.trained_tokens = done.trained_tokens;
    metrics.nodes = 1;
    metrics.work = {flops.of(shapes_of(batch)), 1, job.cluster.device_tflops};
    metrics.skipped = done.outcome.decision.reason;
    metrics.step_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    const auto counted = skipped.add(number, done.outcome, done.trained_tokens, batch.span.size());
    metrics.skipped_steps = skipped.count();
    metrics.bad_samples = folder_.bad_count();
    const bool commit = done.outcome.decision.commit;
    auto written = folder_.write_step(metrics, commit ? done.ids : std::vector<std::string>{});
    if (!written.ok()) return written;
    if (options_.on_step) options_.on_step(metrics, length.steps());
    if (!counted.ok()) return counted;
    progress.step = number;
    progress.skipped = skipped.counts();
    for (const auto& dropped : batch.dropped) bad.emplace(dropped.why.id, number - 1);
    if (!done.dealt.empty()) progress.deals = {{number - 1, done.dealt}};
    progress.bad.clear();
    for (const auto& [id, found] : bad) progress.bad.push_back({id, found});
    const bool is_last = length.reached(number, tokens);
    const std::chrono::duration<double, std::ratio<60>> since =
        std::chrono::steady_clock::now() - last_save;
    // A save that fails is told by `on_save`, and training goes on.
    const bool asked = options_.save && options_.save->exchange(false);
    if (asked || save_is_due(job.checkpoint, number, since.count(), is_last)) {
      if (save(progress, state).ok()) saved_step = number;
      last_save = std::chrono::steady_clock::now();
    }
    if (is_last) return Done{};
  }
}

}  // namespace troupe::engine
