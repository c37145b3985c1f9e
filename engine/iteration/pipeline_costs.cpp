#include "engine/iteration/pipeline_costs.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/iteration_graph.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/layout/module_pipeline.hpp"
#include "scheduler/simulate/predicted_costs.hpp"

namespace troupe::engine {

namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

/// No row may wait longer than one microbatch for its llm microbatch.
bool waits_too_long(const balancer::MicrobatchPlan& plan, std::size_t count) {
  const auto encoder = balancer::group_of(plan.encoder, count),
             llm = balancer::group_of(plan.llm, count);
  for (std::size_t s = 0; s < count; ++s)
    if (llm[s] > encoder[s] + 1) return true;
  return false;
}

/// Between stages of one device each what takes least is not looked for in every estimate: a relay
/// is one transfer more.
bool has_grids(const ParallelPlan& layout) {
  return std::any_of(layout.stages.begin(), layout.stages.end(),
                     [](const Stage& stage) { return stage.devices.size() > 1; });
}

/// Gives a plan those of the layout's devices that its stages name, numbered from 0 in the same
/// order, so that whatever goes by their numbers comes out the same. A lead runs all that a device
/// does, so it is one of them.
void take_devices(const ParallelPlan& layout, ParallelPlan& made) {
  std::map<DeviceId, DeviceId> numbers;
  for (const Stage& stage : made.stages)
    for (const DeviceId device : stage.devices) numbers[device] = device;
  for (auto& [device, number] : numbers) {
    number = DeviceId{made.devices.size()};
    made.devices.push_back(layout.devices[device.index()]);
  }
  for (Stage& stage : made.stages)
    for (DeviceId& device : stage.devices) device = numbers.at(device);
  if (layout.leads.empty()) return;
  for (const auto& [device, number] : numbers)
    made.leads.push_back(numbers.at(layout.lead_of(device)));
}

/// The layout with this pipeline's replicas, stages and devices alone, numbered from 0: neither
/// what a plan of it takes nor what it takes to tell grows with the number of pipelines. REQUIRES:
/// its stages stand one behind the other.
ParallelPlan alone(const ParallelPlan& layout, PipelineId pipeline) {
  ParallelPlan made;
  made.model = layout.model;
  made.module_groups = layout.module_groups;
  Pipeline& own = made.pipelines.emplace_back();
  for (const ReplicaId id : layout.at(pipeline).replicas) {
    const ReplicaId number{made.replicas.size()};
    own.replicas.push_back(number);
    Replica& replica = made.replicas.emplace_back(Replica{layout.at(id).group, PipelineId{0}, {}});
    for (const StageId stage : layout.at(id).stages) {
      replica.stages.emplace_back(made.stages.size());
      made.stages.push_back(layout.at(stage));
      made.stages.back().replica = number;
    }
  }
  take_devices(layout, made);
  return made;
}

std::vector<SampleShape> shapes_of(const std::vector<SampleShape>& all,
                                   const std::vector<std::int32_t>& own) {
  std::vector<SampleShape> shapes;
  for (const auto sample : own) shapes.push_back(all[at(sample)]);
  return shapes;
}

}  // namespace

TokenCount boundary_rows(const SampleShape& sample) {
  TokenCount rows = 0;
  for (const auto& media : sample.media) rows += sample.output_rows(media.module);
  return rows;
}

scheduler::ReplicaCut parts_of(const balancer::MicrobatchPlan& plan,
                               const std::vector<std::int32_t>& samples,
                               const std::vector<SampleShape>& shapes, bool splits_parts) {
  scheduler::ReplicaCut cut;
  std::vector<bool> has_rows(samples.size(), false);
  for (std::size_t place = 0; splits_parts && place < samples.size(); ++place)
    has_rows[place] = boundary_rows(shapes[at(samples[place])]) > 0;
  const auto part_of = balancer::part_of(plan, has_rows);
  for (const auto& group : plan.llm) {
    Part part;
    for (const auto place : group) part.samples.push_back(samples[at(place)]);
    if (!part.samples.empty()) cut.llm.push_back({{std::move(part)}});
  }
  for (const auto& group : plan.encoder) {
    Microbatch microbatch;
    for (const auto place : group) {
      const auto part = at(part_of[at(place)]);
      if (part >= microbatch.parts.size()) microbatch.parts.resize(part + 1);
      microbatch.parts[part].samples.push_back(samples[at(place)]);
    }
    if (!microbatch.parts.empty()) cut.encoder.push_back(std::move(microbatch));
  }
  return cut;
}

PipelineCosts::PipelineCosts(const ParallelPlan& layout, PipelineRules rules,
                             const scheduler::SimulationCosts& costs,
                             const std::vector<std::int32_t>& samples,
                             const std::vector<SampleShape>& shapes)
    : layout_(alone(layout, rules.pipeline)),
      first_(layout.stages_of(rules.pipeline).front()),
      rules_(std::move(rules)),
      costs_(costs),
      own_(samples),
      shapes_(shapes_of(shapes, own_)),
      flow_(layout_.model, shapes_),
      message_ms_(scheduler::message_costs(layout_, costs)),
      routes_{rules_.boundary, has_grids(layout_) ? scheduler::link_costs(costs) : nullptr} {
  for (std::size_t s = 0; s < own_.size(); ++s) numbers_.push_back(static_cast<std::int32_t>(s));
  if (rules_.max_in_flight.empty()) return;
  const auto begin = rules_.max_in_flight.begin() + static_cast<std::ptrdiff_t>(first_.index());
  rules_.max_in_flight = std::vector<std::int32_t>(begin, begin + std::ssize(layout_.stages));
}

double PipelineCosts::task_ms(StageId stage, const std::vector<std::int32_t>& samples,
                              scheduler::TaskKind kind) const {
  return costs_.task_ms(StageId{first_.index() + stage.index()}, samples, kind);
}

scheduler::TaskGraph PipelineCosts::graph(const balancer::MicrobatchPlan& plan) const {
  std::vector<MicrobatchList> microbatches(layout_.replicas.size());
  scheduler::deal_microbatches(
      layout_, PipelineId{0}, {parts_of(plan, numbers_, shapes_, rules_.splits_parts)},
      [](ReplicaId, const Microbatch&) { return 0.0; }, microbatches);
  auto messages = scheduler::plan_messages(layout_, flow_, microbatches, SampleUnits(shapes_, {}));
  scheduler::choose_routes(layout_, messages, routes_);
  const auto part_ms = [this](StageId stage, const std::vector<std::int32_t>& part,
                              scheduler::TaskKind kind) {
    std::vector<std::int32_t> samples;
    samples.reserve(part.size());
    for (const auto place : part) samples.push_back(own_[at(place)]);
    return task_ms(stage, samples, kind);
  };
  const bool split = scheduler::splits_weight_gradient(rules_.schedule);
  return scheduler::iteration_graph(layout_, flow_, microbatches, messages, split, part_ms,
                                    message_ms_)
      .tasks;
}

double PipelineCosts::step_ms(const balancer::MicrobatchPlan& plan) const {
  if (waits_too_long(plan, own_.size())) return kImpossible;
  const auto timeline =
      scheduler::make_schedule(graph(plan), rules_.schedule, rules_.max_in_flight);
  return timeline.ok() ? timeline.value().step_ms : kImpossible;
}

// A task's time as a line over the load: two halves of the samples pay the constant twice.
PipelineCosts::Rate PipelineCosts::rate_of(StageId stage, scheduler::TaskKind kind,
                                           double load) const {
  if (load <= 0) return {};
  std::vector<std::int32_t> even, odd;
  for (std::size_t s = 0; s < own_.size(); ++s) (s % 2 == 0 ? even : odd).push_back(own_[s]);
  const double whole = task_ms(stage, own_, kind);
  const double first = task_ms(stage, even, kind);
  const double second = task_ms(stage, odd, kind);
  const bool twice = first > 0 && second > 0;
  const double constant = twice ? std::clamp(first + second - whole, 0.0, whole) : 0;
  return {(whole - constant) / load, constant};
}

std::optional<scheduler::StepEstimator> PipelineCosts::estimator(
    const balancer::Workload& total) const {
  if (std::ssize(own_) < rules_.microbatches) return std::nullopt;
  scheduler::PipelineTimes times;
  times.microbatches = static_cast<std::int32_t>(rules_.microbatches);
  std::vector<scheduler::StepEstimator::Constants> constants;
  std::map<DeviceId, std::int32_t> devices;
  for (std::size_t s = 0; s < layout_.stages.size(); ++s) {
    const StageId id{s};
    const Stage& stage = layout_.at(id);
    // Of a grid whose devices run several lists the first: an estimate, which the simulator mends.
    const auto device = devices.try_emplace(layout_.lead_of(stage.devices.front()),
                                            static_cast<std::int32_t>(devices.size()));
    const bool encoder = !layout_.is_llm(id);
    const double load = encoder ? total.encoder_ms : total.llm_ms;
    const auto forward = rate_of(id, scheduler::TaskKind::forward, load);
    const auto input = rate_of(id, scheduler::TaskKind::backward_input, load);
    const auto weight = rate_of(id, scheduler::TaskKind::backward_weight, load);
    auto& made = times.stages.emplace_back();
    made.name = std::to_string(first_.index() + s);
    made.device = device.first->second;
    made.encoder = encoder;
    made.forward_ms = {forward.per_ms};
    made.input_grad_ms = {input.per_ms};
    made.weight_grad_ms = {weight.per_ms};
    constants.push_back({forward.constant_ms, input.constant_ms, weight.constant_ms});
  }
  for (const auto& edge : scheduler::pipeline_edges(layout_, PipelineId{0}))
    times.stages[edge.from.index()].next.push_back(edge.to.value);
  return scheduler::StepEstimator::create(times, rules_.schedule, constants, rules_.max_in_flight);
}

}  // namespace troupe::engine
