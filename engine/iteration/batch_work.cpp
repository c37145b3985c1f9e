#include "engine/iteration/batch_work.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "engine/iteration/phase_replicas.hpp"
#include "engine/iteration/pipeline_costs.hpp"
#include "runtime/vocabulary/module_rows.hpp"
#include "runtime/vocabulary/sample_content.hpp"
#include "scheduler/iteration/stage_graph.hpp"

namespace troupe::engine {

namespace {

double total_ms(const scheduler::PassCosts& passes) {
  return passes.forward + passes.input_grad + passes.weight_grad;
}

/// A run at the degrees of its stage.
using GridRun = std::pair<LayerRun, Parallelism>;

/// Work of some layers for all samples asked, by the number of layers where nothing is known.
double work_of(const std::vector<GridRun>& runs, std::span<const std::int32_t> samples,
               const scheduler::SampleCosts* costs) {
  double sum = 0;
  if (costs == nullptr) {
    for (const auto& [run, degrees] : runs) sum += run.layers.size();
    return sum;
  }
  std::vector<scheduler::AlikeLayers> layers;
  for (const auto& [run, degrees] : runs) costs->add(run, degrees, layers);
  for (const std::int32_t s : samples)
    sum += total_ms(costs->sample(layers, static_cast<std::size_t>(s)));
  return sum;
}

/// The layers of each device of a replica, and how many times as long it takes for them.
using DeviceRuns = std::vector<std::pair<std::vector<GridRun>, double>>;

DeviceRuns runs_of(const ParallelPlan& plan, ReplicaId replica, const NodeTimes& times) {
  std::map<DeviceId, std::vector<GridRun>> runs;
  for (const StageId stage : plan.at(replica).stages)
    for (const LayerRun& run : plan.at(stage).runs)
      for (const DeviceId device : plan.at(stage).devices)
        runs[device].emplace_back(run, plan.at(stage).grid);
  DeviceRuns found;
  for (auto& [device, own] : runs) {
    std::pair work{std::move(own), times_of(times, plan.devices[device.index()].node)};
    if (found.empty() || found.back() != work)  // Ranks of a grid have the same.
      found.push_back(std::move(work));
  }
  return found;
}

/// All layers of a group, at the degrees that samples are weighed at.
std::vector<GridRun> runs_of(const ParallelPlan& plan, const ModuleGroup& group) {
  const auto degrees = scheduler::module_degrees(plan);
  std::vector<GridRun> runs;
  for (const ModuleId module : group.modules) {
    const auto count = static_cast<std::int32_t>(plan.model.at(module).layers.size());
    runs.emplace_back(LayerRun{module, {0, count}}, degrees[module.index()]);
  }
  return runs;
}

/// Which share of what samples weigh the busiest device of a replica takes: of a replica on grids
/// that are larger than those that samples are weighed at, less than its layers' share.
double busiest_share(const DeviceRuns& runs, double weight, std::span<const std::int32_t> samples,
                     const scheduler::SampleCosts* costs) {
  double busiest = 0;
  for (const auto& [own, times] : runs)
    busiest = std::max(busiest, times * work_of(own, samples, costs));
  return weight > 0 ? busiest / weight : 1;
}

/// A sample's work in a group.
class GroupWork {
 public:
  GroupWork(const ParallelPlan& plan, const ModuleGroup& group, const scheduler::SampleCosts* costs)
      : plan_(plan), group_(group), costs_(costs) {
    if (costs == nullptr) return;
    known_.resize(costs->shape_count());
    for (const auto& [run, degrees] : runs_of(plan, group)) costs->add(run, degrees, layers_);
  }

  double output_rows(const SampleShape& sample) const {
    TokenCount rows = 0;
    for (const ModuleId module : group_.modules)
      rows += plan_.model.at(module).kind == ModuleKind::teacher ? text_rows(sample)
                                                                 : sample.output_rows(module);
    return static_cast<double>(rows);
  }

  /// Bytes of its media for the group's encoders.
  double content(const SampleShape& unit) const {
    Bytes bytes;
    for (const ModuleId module : group_.modules) bytes += media_bytes(unit, module);
    return static_cast<double>(bytes.count());
  }

  /// That a row takes to the llm, and its gradient on the way back, where there is one.
  double columns() const {
    std::int64_t width = 0;
    bool trains = false;
    for (const ModuleId id : group_.modules) {
      const ModuleSpec& module = plan_.model.at(id);
      trains = trains || !module.freeze;
      for (const ModuleId next : module.next)
        if (plan_.group_of(next) != plan_.group_of(id))
          width = std::max(width, module.output_width);
    }
    return static_cast<double>(trains ? 2 * width : width);
  }

  /// Once for all samples that are alike, as far as costs tell.
  double of(const SampleShape& sample, std::size_t index) {
    if (costs_ == nullptr) return work_of(sample, index);
    auto& known = known_[costs_->shape_of(index)];
    if (!known) known = work_of(sample, index);
    return *known;
  }

 private:
  double work_of(const SampleShape& sample, std::size_t index) const {
    // A curve may say that a few rows cost nothing; that they are there must not be lost.
    constexpr double kLeastPerRow = 1e-9;
    double rows = 0;
    for (const ModuleId module : group_.modules)
      rows += static_cast<double>(hidden_rows(plan_.model, module, sample));
    if (costs_ == nullptr || rows == 0) return rows;
    return std::max(total_ms(costs_->sample(layers_, index)), kLeastPerRow * rows);
  }

  const ParallelPlan& plan_;
  const ModuleGroup& group_;
  const scheduler::SampleCosts* costs_;
  std::vector<scheduler::AlikeLayers> layers_;
  std::vector<std::optional<double>> known_;  ///< Per shape.
};

}  // namespace

Result<std::vector<balancer::Workload>> weigh_samples(const ParallelPlan& plan,
                                                      scheduler::SampleSums* sums,
                                                      std::span<const SampleShape> samples) {
  std::vector<balancer::Workload> weights;
  weights.reserve(samples.size());
  if (sums == nullptr) {
    for (const auto& sample : samples)
      weights.push_back(
          {static_cast<double>(boundary_rows(sample)), static_cast<double>(sample.llm_tokens)});
    return weights;
  }
  auto costed = scheduler::sample_workloads(*sums, scheduler::module_degrees(plan));
  if (!costed.ok()) return std::move(costed).error();
  for (const auto& weight : std::span(costed.value()).first(samples.size()))
    weights.push_back({weight.encoder_total_ms, weight.llm_total_ms});
  return weights;
}

double inside_node_share(const scheduler::DeviceSpeeds& speeds) {
  const double inside = speeds.node.gigabytes_per_s, between = speeds.network.gigabytes_per_s;
  return inside > 0 && between > 0 ? std::min(1.0, between / inside) : 0;
}

std::vector<PhaseWork> phase_works(const ParallelPlan& plan, const SampleUnits& units,
                                   const scheduler::SampleCosts* costs, double element_bytes,
                                   double inside_node, const NodeTimes& times) {
  const std::size_t samples = units.whole();
  std::vector<PhaseWork> phases;
  for (std::size_t g = 0; g < plan.module_groups.size(); ++g) {
    PhaseWork& phase = phases.emplace_back();
    GroupWork work(plan, plan.module_groups[g], costs);
    for (std::size_t u = 0; u < units.size(); ++u) {
      const auto unit = static_cast<std::int32_t>(u);
      const SampleShape& shape = units.shape(unit);
      (u < samples ? phase.samples : phase.piece_work).push_back(work.of(shape, u));
      (u < samples ? phase.rows : phase.piece_rows).push_back(work.output_rows(shape));
      if (u >= samples && plan.group_of(units.piece(unit)->module) == ModuleGroupId{g})
        phase.cut[units.sample_of(unit)].push_back(unit);
      // Of a piece its sample is the one that nodes see.
      const SampleShape& whole = units.shape(units.sample_of(unit));
      if (whole.seen_by.empty()) continue;
      if (const double content = work.content(shape); content > 0)
        phase.apart[unit] = {whole.seen_by, content};
    }
    phase.bytes_per_row = element_bytes * work.columns();
    phase.inside_node = inside_node;
    const auto asked = asked_samples(phase.samples);
    const double weight = work_of(runs_of(plan, plan.module_groups[g]), asked, costs);
    std::map<DeviceRuns, double> known;  // Most replicas are cut alike.
    for (const ReplicaId replica : replicas_of(plan, ModuleGroupId{g})) {
      const auto [found, is_new] = known.try_emplace(runs_of(plan, replica, times), 1);
      if (is_new) found->second = busiest_share(found->first, weight, asked, costs);
      phase.shares.push_back(found->second);
    }
  }
  return phases;
}

}  // namespace troupe::engine
