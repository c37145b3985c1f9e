#include "scheduler/layout/module_pipeline.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <string>

#include "runtime/vocabulary/index.hpp"

namespace troupe::scheduler {

namespace {

/// Encoder work of a microbatch per llm microbatch that takes it; its own number first.
std::vector<std::pair<std::int32_t, double>> shares(std::span<const ModuleWork> samples,
                                                    const std::vector<std::int32_t>& microbatch,
                                                    std::int32_t number,
                                                    const std::vector<std::int32_t>& llm_of) {
  std::map<std::int32_t, double> work;
  for (const auto sample : microbatch)
    if (samples[at(sample)].encoder_ms > 0)
      work[llm_of[at(sample)]] += samples[at(sample)].encoder_ms;
  std::vector<std::pair<std::int32_t, double>> ordered(work.begin(), work.end());
  std::stable_partition(ordered.begin(), ordered.end(),
                        [&](const auto& share) { return share.first == number; });
  return ordered;
}

bool is_forward(const Task& task) { return task.kind == TaskKind::forward; }

/// Time that a microbatch spends in other stages, on its way from the pipeline's source to each
/// stage or from there to its sink, in one direction. The way to a task is the largest over its
/// neighbours on that side of (way + time + delay).
class Ways {
 public:
  Ways(const TaskGraph& graph, bool forward, bool source_side) : graph_(graph), forward_(forward) {
    std::vector<std::vector<std::pair<std::int32_t, double>>> neighbours(graph.tasks.size());
    for (const auto& dependency : graph.dependencies) {
      const auto& user = graph.tasks[at(dependency.task)];
      const auto& need = graph.tasks[at(dependency.needs)];
      if (user.stage == need.stage || is_forward(user) != forward || is_forward(need) != forward)
        continue;
      // Rows come from the source, gradients from the sink.
      const bool needs_are_neighbours = forward == source_side;
      neighbours[at(needs_are_neighbours ? dependency.task : dependency.needs)].push_back(
          {needs_are_neighbours ? dependency.needs : dependency.task, dependency.delay_ms});
    }
    // Tasks stand by stage, stages in topological order.
    way_.assign(graph.tasks.size(), 0);
    for (std::size_t i = 0; i < way_.size(); ++i) {
      const auto task = source_side ? i : way_.size() - 1 - i;
      for (const auto& [other, delay_ms] : neighbours[task])
        way_[task] = std::max(way_[task], way_[at(other)] + graph.tasks[at(other)].ms + delay_ms);
    }
  }

  /// Of the nearest microbatch, per stage; 0 where it has no work of this direction.
  std::vector<double> least() const {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    std::vector<double> least(graph_.stages.size(), kNone);
    for (std::size_t t = 0; t < graph_.tasks.size(); ++t) {
      const Task& task = graph_.tasks[t];
      if (is_forward(task) == forward_ && task.kind != TaskKind::backward_weight && task.ms > 0)
        least[at(task.stage)] = std::min(least[at(task.stage)], way_[t]);
    }
    std::replace(least.begin(), least.end(), kNone, 0.0);
    return least;
  }

 private:
  const TaskGraph& graph_;
  const bool forward_;
  std::vector<double> way_;
};

/// Longest that one direction takes alone: a stage's work between the ways to and from it.
double phase_ms(const TaskGraph& graph, bool forward) {
  const auto before = Ways(graph, forward, true).least();
  const auto behind = Ways(graph, forward, false).least();
  std::vector<double> work(graph.stages.size());
  for (const auto& task : graph.tasks)
    if (is_forward(task) == forward) work[at(task.stage)] += task.ms;
  double longest = 0;
  for (std::size_t s = 0; s < work.size(); ++s)
    longest = std::max(longest, before[s] + work[s] + behind[s]);
  return longest;
}

}  // namespace

PipelineTimes module_pipeline(std::span<const ModuleWork> samples, const SampleLists& encoder,
                              const SampleLists& llm, const ModulePipeline& shape) {
  PipelineTimes times;
  const auto count = std::max<std::size_t>(1, std::max(encoder.size(), llm.size()));
  times.microbatches = static_cast<std::int32_t>(count);
  std::vector<std::int32_t> llm_of(samples.size());
  for (std::size_t m = 0; m < llm.size(); ++m)
    for (const auto sample : llm[m]) llm_of[at(sample)] = static_cast<std::int32_t>(m);

  std::vector<double> encoder_ms(count), llm_ms(count);
  std::vector<std::vector<double>> parts(count);
  std::vector<std::vector<PartRef>> needs(count);
  for (std::size_t m = 0; m < llm.size(); ++m)
    for (const auto sample : llm[m]) llm_ms[m] += samples[at(sample)].llm_ms;
  for (std::size_t m = 0; m < count; ++m) {
    const auto number = static_cast<std::int32_t>(m);
    if (m < encoder.size())
      for (const auto& [target, ms] : shares(samples, encoder[m], number, llm_of)) {
        needs[at(target)].push_back(
            {shape.encoder_stages - 1, number, static_cast<std::int32_t>(parts[m].size())});
        parts[m].push_back(ms);
        encoder_ms[m] += ms;
      }
    for (auto& part : parts[m]) part /= encoder_ms[m];
    if (parts[m].empty()) parts[m] = {1};
  }

  const auto scaled = [](const std::vector<double>& list, double factor) {
    std::vector<double> result;
    for (const double ms : list) result.push_back(ms * factor);
    return result;
  };
  const double llm_input = shape.freeze_llm && shape.freeze_encoder ? 0 : 1;
  for (std::int32_t s = 0; s < shape.encoder_stages + shape.llm_stages; ++s) {
    StageTimes stage;
    stage.encoder = s < shape.encoder_stages;
    const auto own = stage.encoder ? s : s - shape.encoder_stages;
    stage.name = (stage.encoder ? "encoder." : "llm.") + std::to_string(own);
    stage.device = shape.colocated ? own : s;
    if (s + 1 < shape.encoder_stages + shape.llm_stages) stage.next = {s + 1};
    const auto& work = stage.encoder ? encoder_ms : llm_ms;
    const double share = 1.0 / (stage.encoder ? shape.encoder_stages : shape.llm_stages);
    const bool frozen = stage.encoder ? shape.freeze_encoder : shape.freeze_llm;
    stage.forward_ms = scaled(work, share);
    stage.input_grad_ms =
        scaled(work, stage.encoder ? (shape.freeze_encoder ? 0 : share) : share * llm_input);
    stage.weight_grad_ms = scaled(work, frozen ? 0 : share);
    if (stage.encoder) stage.parts = parts;
    if (s == shape.encoder_stages) stage.needs = needs;
    times.stages.push_back(std::move(stage));
  }
  return times;
}

PipelineTimes module_pipeline(std::span<const ModuleWork> microbatches,
                              const ModulePipeline& shape) {
  SampleLists each;
  for (std::size_t m = 0; m < microbatches.size(); ++m)
    each.push_back({static_cast<std::int32_t>(m)});
  return module_pipeline(microbatches, each, each, shape);
}

double lower_bound_ms(const TaskGraph& graph) {
  const auto to = Ways(graph, true, true).least();
  const auto from = Ways(graph, false, true).least();
  std::vector<double> device_work(at(graph.device_count()));
  std::vector<double> work(graph.stages.size()), weight(graph.stages.size());
  for (const auto& task : graph.tasks) {
    const StageSpec& stage = graph.stages[at(task.stage)];
    device_work[at(stage.device)] += task.ms;
    for (const auto other : stage.others) device_work[at(other)] += task.ms;
    work[at(task.stage)] += task.ms;
    if (task.kind == TaskKind::backward_weight) weight[at(task.stage)] += task.ms;
  }
  double bound = 0;
  for (const double ms : device_work) bound = std::max(bound, ms);
  for (std::size_t s = 0; s < graph.stages.size(); ++s)
    bound = std::max(bound, to[s] + work[s] - weight[s] + std::max(weight[s], from[s]));
  return bound;
}

double schedule_bound_ms(const TaskGraph& graph, const std::string& schedule) {
  const double bound = lower_bound_ms(graph);
  if (schedule != "gpipe") return bound;
  std::vector<bool> works(graph.stages.size());
  for (const auto& task : graph.tasks) works[at(task.stage)] = true;
  std::int32_t sinks = 0;
  for (std::size_t s = 0; s < works.size(); ++s) sinks += works[s] && graph.stages[s].depth == 1;
  if (sinks != 1) return bound;
  return std::max(bound, phase_ms(graph, true) + phase_ms(graph, false));
}

}  // namespace troupe::scheduler
