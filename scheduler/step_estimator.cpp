#include "scheduler/step_estimator.hpp"

#include <algorithm>
#include <cmath>

#include "scheduler/schedules.hpp"

namespace troupe::scheduler {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

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

/// Least over microbatches of what a stage's microbatch meets on its way in other stages.
class LeastWay {
 public:
  void meet(double ms) { least_ = std::min(least_, ms); }
  double ms() const { return std::isfinite(least_) ? least_ : 0; }

 private:
  double least_ = HUGE_VAL;
};

}  // namespace

std::optional<StepEstimator> StepEstimator::create(const ModulePipeline& shape,
                                                   const std::string& schedule,
                                                   std::int32_t microbatches) {
  if (shape.colocated || !has_fixed_order(schedule)) return std::nullopt;
  // With loads of 1 the times of tasks are their shares.
  const std::vector<ModuleWork> ones(at(microbatches), {1, 1});
  const auto graph = task_graph(module_pipeline(ones, shape), splits_weight_gradient(schedule));
  const auto timeline = make_schedule(graph, schedule);
  if (!timeline.ok()) return std::nullopt;

  StepEstimator made;
  made.forwards_first_ = schedule == "gpipe";
  std::vector<std::vector<std::int32_t>> needs(graph.tasks.size());
  for (const auto& dependency : graph.dependencies)
    needs[at(dependency.task)].push_back(dependency.needs);
  for (const auto& tasks : timeline.value().order)
    for (std::size_t i = 1; i < tasks.size(); ++i) needs[at(tasks[i])].push_back(tasks[i - 1]);
  const auto order = after_their_needs(needs);
  std::vector<std::int32_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[at(order[i])] = static_cast<std::int32_t>(i);
  made.stages_.resize(graph.stages.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Task& task = graph.tasks[at(order[i])];
    auto& stage = made.stages_[at(task.stage)];
    stage.encoder = graph.stages[at(task.stage)].encoder;
    made.steps_.push_back(
        {task.microbatch, stage.encoder, task.ms, static_cast<std::int32_t>(made.needs_.size())});
    for (const auto need : needs[at(order[i])]) made.needs_.push_back(place[at(need)]);
    (task.kind == TaskKind::forward           ? stage.forward
     : task.kind == TaskKind::backward_weight ? stage.weight
                                              : stage.backward) = task.ms;
  }
  return made;
}

StepEstimator::Estimate StepEstimator::operator()(std::span<const ModuleWork> microbatches) const {
  std::vector<double> end_ms(steps_.size());
  double last_ms = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const auto end = i + 1 < steps_.size() ? at(steps_[i + 1].first_need) : needs_.size();
    double begin_ms = 0;
    for (auto need = at(step.first_need); need < end; ++need)
      begin_ms = std::max(begin_ms, end_ms[at(needs_[need])]);
    end_ms[i] = begin_ms + step.share * side(microbatches[at(step.microbatch)], step.encoder);
    last_ms = std::max(last_ms, end_ms[i]);
  }
  return {last_ms, bound_ms(microbatches)};
}

double StepEstimator::bound_ms(std::span<const ModuleWork> microbatches) const {
  // Both directions' least ways from the source to each stage and from there to the sink.
  std::vector<LeastWay> to(stages_.size()), on(stages_.size()), from(stages_.size()),
      in(stages_.size());
  for (const auto& work : microbatches) {
    double forward = 0, backward = 0, forward_all = 0, backward_all = 0;
    for (const auto& stage : stages_) {
      forward_all += stage.forward * side(work, stage.encoder);
      backward_all += stage.backward * side(work, stage.encoder);
    }
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const double load = side(work, stages_[s].encoder);
      const double own_forward = stages_[s].forward * load;
      const double own_backward = stages_[s].backward * load;
      if (own_forward > 0) {
        to[s].meet(forward);
        on[s].meet(forward_all - forward - own_forward);
      }
      if (own_backward > 0) {
        from[s].meet(backward);
        in[s].meet(backward_all - backward - own_backward);
      }
      forward += own_forward;
      backward += own_backward;
    }
  }
  ModuleWork sum;
  for (const auto& work : microbatches) {
    sum.encoder_ms += work.encoder_ms;
    sum.llm_ms += work.llm_ms;
  }
  double bound = 0, forwards = 0, backwards = 0;
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    const double load = side(sum, stages_[s].encoder);
    const double weight = stages_[s].weight * load;
    const double gradients = stages_[s].backward * load;
    bound = std::max(
        bound, to[s].ms() + stages_[s].forward * load + gradients + std::max(weight, from[s].ms()));
    forwards = std::max(forwards, to[s].ms() + stages_[s].forward * load + on[s].ms());
    backwards = std::max(backwards, in[s].ms() + gradients + from[s].ms());
  }
  return forwards_first_ ? std::max(bound, forwards + backwards) : bound;
}

}  // namespace troupe::scheduler
