#include "scheduler/layout/step_estimator.hpp"

#include <algorithm>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/check/check_order.hpp"
#include "scheduler/iteration/schedules.hpp"

namespace troupe::scheduler {

namespace {

double side(const ModuleWork& work, bool encoder) {
  return encoder ? work.encoder_ms : work.llm_ms;
}

/// Tasks in an order in which each stands behind all it needs. Times are no help: a task of no
/// duration ends when it begins.
std::vector<std::int32_t> after_their_needs(const std::vector<std::vector<std::int32_t>>& needs) {
  std::vector<std::vector<std::int32_t>> users(needs.size());
  std::vector<std::size_t> left(needs.size());
  std::vector<std::int32_t> order;
  for (std::size_t task = 0; task < needs.size(); ++task) {
    left[task] = needs[task].size();
    if (left[task] == 0) order.push_back(static_cast<std::int32_t>(task));
    for (const auto need : needs[task]) users[at(need)].push_back(static_cast<std::int32_t>(task));
  }
  for (std::size_t i = 0; i < order.size(); ++i)
    for (const auto user : users[at(order[i])])
      if (--left[at(user)] == 0) order.push_back(user);
  return order;
}

}  // namespace

std::optional<StepEstimator> StepEstimator::create(const ModulePipeline& shape,
                                                   const Schedule& schedule,
                                                   std::int32_t microbatches) {
  // With loads of 1 the times of tasks are their shares.
  const std::vector<ModuleWork> ones(at(microbatches), {1, 1});
  return create(module_pipeline(ones, shape), schedule);
}

std::optional<StepEstimator> StepEstimator::create(const PipelineTimes& times,
                                                   const Schedule& schedule,
                                                   std::span<const Constants> constants,
                                                   const std::vector<std::int32_t>& max_in_flight) {
  const auto shared = is_shared(times);
  const bool any_shared = std::find(shared.begin(), shared.end(), true) != shared.end();
  if (any_shared || !has_fixed_order(schedule)) return std::nullopt;
  const bool split = splits_weight_gradient(schedule);
  const auto graph = task_graph(times, split);
  const auto timeline = make_schedule(graph, schedule, max_in_flight);
  if (!timeline.ok()) return std::nullopt;

  StepEstimator made;
  made.stages_.resize(times.stages.size());
  for (std::size_t s = 0; s < times.stages.size(); ++s) {
    const StageTimes& stage = times.stages[s];
    const Constants fixed = s < constants.size() ? constants[s] : Constants{};
    auto& own = made.stages_[s];
    own.encoder = stage.encoder;
    own.forward = {stage.forward_ms[0], fixed.forward_ms};
    own.backward = {stage.input_grad_ms[0], fixed.input_grad_ms};
    const Rate weight{stage.weight_grad_ms[0], fixed.weight_grad_ms};
    if (split)
      own.weight = weight;
    else
      own.backward = {own.backward.per_ms + weight.per_ms,
                      own.backward.constant_ms + weight.constant_ms};
  }
  made.add_steps(graph, timeline.value());
  return made;
}

void StepEstimator::add_steps(const TaskGraph& graph, const Timeline& timeline) {
  std::vector<std::vector<std::int32_t>> needs(graph.tasks.size());
  for (const auto& dependency : graph.dependencies)
    needs[at(dependency.task)].push_back(dependency.needs);
  for (const auto& tasks : timeline.order)
    for (std::size_t i = 1; i < tasks.size(); ++i) needs[at(tasks[i])].push_back(tasks[i - 1]);
  const auto order = after_their_needs(needs);
  std::vector<std::int32_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[at(order[i])] = static_cast<std::int32_t>(i);
  for (const auto index : order) {
    const Task& task = graph.tasks[at(index)];
    const auto& stage = stages_[at(task.stage)];
    const Rate& rate = task.kind == TaskKind::forward           ? stage.forward
                       : task.kind == TaskKind::backward_weight ? stage.weight
                                                                : stage.backward;
    steps_.push_back(
        {task.microbatch, stage.encoder, rate, static_cast<std::int32_t>(needs_.size())});
    for (const auto need : needs[at(index)]) needs_.push_back(place[at(need)]);
  }
}

double StepEstimator::operator()(std::span<const ModuleWork> microbatches) const {
  std::vector<double> end_ms(steps_.size());
  double last_ms = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const auto end = i + 1 < steps_.size() ? at(steps_[i + 1].first_need) : needs_.size();
    double begin_ms = 0;
    for (auto need = at(step.first_need); need < end; ++need)
      begin_ms = std::max(begin_ms, end_ms[at(needs_[need])]);
    end_ms[i] = begin_ms + step.rate.at(side(microbatches[at(step.microbatch)], step.encoder));
    last_ms = std::max(last_ms, end_ms[i]);
  }
  return last_ms;
}

}  // namespace troupe::scheduler
