#include "scheduler/layout/module_partition.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "scheduler/layout/module_topology.hpp"

namespace troupe::scheduler {

namespace {

constexpr double kRounding = 1e-12;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double total_ms(const PlannedLayer& layer) {
  return layer.forward_ms + layer.input_grad_ms + layer.weight_grad_ms;
}

// A place in the chains: the first or last own layer of a module's chain, with what rides on it.
struct Unit {
  std::size_t module = 0;
  bool first = false;  ///< Else the last one.
};

class Partitioner {
 public:
  Partitioner(const std::vector<PlannedModule>& modules, ModuleTopology topology,
              std::int64_t device_count, std::int64_t microbatches)
      : modules_(modules),
        topology_(std::move(topology)),
        costs_(frozen_aware_costs(modules)),
        device_count_(device_count),
        repeats_(static_cast<double>(microbatches - 1)),
        riding_(modules.size(), 0) {
    for (std::size_t i = 0; i < modules.size(); ++i)
      if (topology_.attachments[i].host >= 0) attached_.push_back(i);
  }

  ModulePartition solve() {
    try_riding(0);
    return std::move(best_);
  }

 private:
  std::int32_t layer_count(std::size_t module) const {
    return static_cast<std::int32_t>(modules_[module].layers.size());
  }

  void try_riding(std::size_t i) {
    if (i == attached_.size()) return try_chains();
    auto& riding = riding_[attached_[i]];
    for (riding = 0; riding <= layer_count(attached_[i]); ++riding) try_riding(i + 1);
    riding = 0;
  }

  // A module's layers that do not ride elsewhere.
  LayerRange own(std::size_t module) const {
    const auto count = layer_count(module);
    return topology_.attachments[module].before_host ? LayerRange{0, count - riding_[module]}
                                                     : LayerRange{riding_[module], count};
  }

  // Where the first (or last) layer of a module runs: in its own chain, or with its host.
  Unit unit_of(std::size_t module, bool first) const {
    const auto range = own(module);
    const bool at_home =
        range.size() > 0 && (first ? range.begin == 0 : range.end == layer_count(module));
    return at_home ? Unit{module, first} : host_unit(module);
  }
  Unit host_unit(std::size_t module) const {
    const auto& [host, before] = topology_.attachments[module];
    return unit_of(static_cast<std::size_t>(host), before);
  }

  // Chains of indivisible costs: a layer that others ride on counts with them.
  void build_chains() {
    chains_.assign(modules_.size(), {});
    for (std::size_t m = 0; m < modules_.size(); ++m)
      for (auto layer = own(m).begin; layer < own(m).end; ++layer)
        chains_[m].push_back(total_ms(costs_[m][static_cast<std::size_t>(layer)]));
    for (const auto m : attached_) {
      const auto range = own(m);
      double ride = 0;
      for (std::int32_t layer = 0; layer < layer_count(m); ++layer)
        if (layer < range.begin || layer >= range.end)
          ride += total_ms(costs_[m][static_cast<std::size_t>(layer)]);
      if (riding_[m] == 0) continue;
      const auto unit = host_unit(m);
      (unit.first ? chains_[unit.module].front() : chains_[unit.module].back()) += ride;
    }
  }

  struct Probe {
    std::int64_t stages = 0;
    double max = 0;
    double next_bound = kInfinity;  ///< Least bound that changes the cut.
  };

  Probe probe(double bound) const {
    Probe result;
    for (const auto& chain : chains_) {
      double sum = 0;
      bool open = false;
      for (const double cost : chain) {
        if (cost > bound) {
          result.next_bound = std::min(result.next_bound, cost);
          result.stages = std::numeric_limits<std::int64_t>::max();
          return result;
        }
        if (open && sum + cost <= bound) {
          sum += cost;
        } else {
          if (open) result.next_bound = std::min(result.next_bound, sum + cost);
          ++result.stages;
          sum = cost;
          open = true;
        }
        result.max = std::max(result.max, sum);
      }
    }
    return result;
  }

  void try_chains() {
    build_chains();
    Probe found = probe(best_.stages.empty() ? kInfinity : best_.max_ms * (1 + kRounding));
    if (found.stages > device_count_) return;
    // As in `partition`: the search ends on a sum that occurs, hence exactly.
    double low = 0, high = found.max;
    for (const auto& chain : chains_)
      for (const double cost : chain) low = std::max(low, cost);
    while (low < high) {
      double bound = low + (high - low) / 2;
      if (!(bound < high)) bound = low;
      found = probe(bound);
      if (found.stages <= device_count_) {
        high = found.max;
      } else {
        low = found.next_bound;
      }
    }
    keep_better(high);
  }

  // Configurations add the same layers in different orders, so that equal maxima may differ by
  // rounding.
  static bool less(double a, double b) { return a < b * (1 - kRounding); }

  void keep_better(double bound) {
    auto made = build(bound);
    if (made.stages.empty()) return;  // Riding would make stages wait for each other in a circle.
    const auto better = [&] {
      if (best_.stages.empty() || less(made.max_ms, best_.max_ms)) return true;
      if (less(best_.max_ms, made.max_ms) || less(best_.step_ms, made.step_ms)) return false;
      return less(made.step_ms, best_.step_ms) || made.stages.size() < best_.stages.size();
    };
    if (better()) best_ = std::move(made);
  }

  // Stages of every chain under the bound: per module the stage of each own layer.
  std::vector<std::vector<std::size_t>> cut(double bound, std::size_t& stage_count) const {
    std::vector<std::vector<std::size_t>> stage_of(modules_.size());
    for (const auto m : topology_.order) {
      const auto module = static_cast<std::size_t>(m);
      double sum = 0;
      for (const double cost : chains_[module]) {
        const bool opens = stage_of[module].empty() || !(sum + cost <= bound);
        sum = opens ? cost : sum + cost;
        stage_count += opens;
        stage_of[module].push_back(stage_count - 1);
      }
    }
    return stage_of;
  }

  ModulePartition build(double bound) const {
    std::size_t stage_count = 0;
    const auto stage_of_own = cut(bound, stage_count);
    std::vector<PlannedStage> stages(stage_count);
    std::vector<std::vector<std::size_t>> after(stage_count);
    // Stage of each layer of each module, modules in topological order so that runs are, too.
    std::vector<std::vector<std::size_t>> stage_of(modules_.size());
    for (const auto m : topology_.order) {
      const auto module = static_cast<std::size_t>(m);
      const auto range = own(module);
      for (std::int32_t layer = 0; layer < layer_count(module); ++layer) {
        const bool at_home = layer >= range.begin && layer < range.end;
        const auto stage = at_home
                               ? stage_of_own[module][static_cast<std::size_t>(layer - range.begin)]
                               : stage_of_unit(host_unit(module), stage_of_own);
        if (layer > 0 && stage_of[module].back() != stage)
          after[stage_of[module].back()].push_back(stage);
        stage_of[module].push_back(stage);
        add_layer(stages[stage], m, layer);
      }
    }
    for (std::size_t from = 0; from < modules_.size(); ++from)
      for (const auto to : topology_.next[from]) {
        const auto last = stage_of[from].back();
        const auto first = stage_of[static_cast<std::size_t>(to)].front();
        if (last != first) after[last].push_back(first);
      }
    return finish(std::move(stages), after);
  }

  static std::size_t stage_of_unit(const Unit& unit,
                                   const std::vector<std::vector<std::size_t>>& stage_of_own) {
    return unit.first ? stage_of_own[unit.module].front() : stage_of_own[unit.module].back();
  }

  void add_layer(PlannedStage& stage, std::int32_t module, std::int32_t layer) const {
    const auto& cost = costs_[static_cast<std::size_t>(module)][static_cast<std::size_t>(layer)];
    stage.forward_ms += cost.forward_ms;
    stage.backward_ms += cost.input_grad_ms + cost.weight_grad_ms;
    if (!stage.runs.empty() && stage.runs.back().module == module &&
        stage.runs.back().layers.end == layer) {
      ++stage.runs.back().layers.end;
    } else {
      stage.runs.push_back({module, {layer, layer + 1}});
    }
  }

  // Topological order, longest path and step time; empty if the stages form a circle.
  ModulePartition finish(std::vector<PlannedStage> stages,
                         const std::vector<std::vector<std::size_t>>& after) const {
    std::vector<int> inputs(stages.size(), 0);
    for (const auto& list : after)
      for (const auto stage : list) ++inputs[stage];
    std::vector<std::size_t> ready;  // A heap: the lowest stage first.
    for (std::size_t i = stages.size(); i-- > 0;)
      if (inputs[i] == 0) ready.push_back(i);
    std::make_heap(ready.begin(), ready.end(), std::greater<>{});
    std::vector<double> reached(stages.size(), 0);
    ModulePartition made;
    double longest = 0;
    while (!ready.empty()) {
      std::pop_heap(ready.begin(), ready.end(), std::greater<>{});
      const auto i = ready.back();
      ready.pop_back();
      const double end = reached[i] + stages[i].total_ms();
      longest = std::max(longest, end);
      made.max_ms = std::max(made.max_ms, stages[i].total_ms());
      made.stages.push_back(std::move(stages[i]));
      for (const auto next : after[i]) {
        reached[next] = std::max(reached[next], end);
        if (--inputs[next] > 0) continue;
        ready.push_back(next);
        std::push_heap(ready.begin(), ready.end(), std::greater<>{});
      }
    }
    if (made.stages.size() < stages.size()) return {};
    made.step_ms = longest + repeats_ * made.max_ms;
    return made;
  }

  const std::vector<PlannedModule>& modules_;
  ModuleTopology topology_;
  std::vector<std::vector<PlannedLayer>> costs_;
  std::int64_t device_count_;
  double repeats_;
  std::vector<std::size_t> attached_;
  std::vector<std::int32_t> riding_;  // Layers of each module that ride with its host.
  std::vector<std::vector<double>> chains_;
  ModulePartition best_;
};

Status check_times(const std::vector<PlannedModule>& modules) {
  for (std::size_t m = 0; m < modules.size(); ++m)
    for (std::size_t i = 0; i < modules[m].layers.size(); ++i) {
      const auto& layer = modules[m].layers[i];
      for (const double ms : {layer.forward_ms, layer.input_grad_ms, layer.weight_grad_ms})
        if (!(ms >= 0) || !std::isfinite(ms))
          return Error{Errc::invalid_argument,
                       "expected finite times >= 0, found " + std::to_string(ms),
                       "modules[" + std::to_string(m) + "].layers[" + std::to_string(i) + "]",
                       {}};
    }
  return Done{};
}

Status check_work(const std::vector<PlannedModule>& modules) {
  double work = 0, choices = 1;
  for (const auto& module : modules) {
    work += static_cast<double>(module.layers.size());
    if (module.attach) choices *= static_cast<double>(module.layers.size() + 1);
  }
  if (work * choices <= kPartitionWorkMax) return Done{};
  return Error{Errc::invalid_argument,
               "the attached modules have too many layers to try every way of sharing a stage",
               "modules", "attach small modules only, or give their layers in larger blocks"};
}

}  // namespace

std::vector<std::vector<PlannedLayer>> frozen_aware_costs(
    const std::vector<PlannedModule>& modules) {
  std::vector<std::vector<PlannedLayer>> costs;
  const auto topology = resolve_modules(modules);
  if (!topology.ok()) return costs;
  std::vector<bool> before(modules.size(), false);  // Something trainable in a module before.
  for (const auto m : topology.value().order) {
    const auto module = static_cast<std::size_t>(m);
    for (const auto next : topology.value().next[module])
      if (before[module] || !modules[module].freeze) before[static_cast<std::size_t>(next)] = true;
  }
  for (std::size_t m = 0; m < modules.size(); ++m) {
    auto& layers = costs.emplace_back(modules[m].layers);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (modules[m].freeze) layers[i].weight_grad_ms = 0;
      if (!before[m] && (modules[m].freeze || i == 0)) layers[i].input_grad_ms = 0;
    }
  }
  return costs;
}

Result<ModulePartition> partition_modules(const std::vector<PlannedModule>& modules,
                                          std::int64_t device_count, std::int64_t microbatches) {
  auto topology = resolve_modules(modules);
  if (!topology.ok()) return topology.error();
  if (auto status = check_times(modules); !status.ok()) return status.error();
  if (auto status = check_work(modules); !status.ok()) return status.error();
  if (microbatches < 1)
    return Error{Errc::invalid_argument,
                 "expected at least 1, found " + std::to_string(microbatches),
                 "microbatches",
                 {}};
  const auto alone = std::count_if(modules.begin(), modules.end(),
                                   [](const auto& module) { return !module.attach; });
  if (device_count < alone)
    return Error{Errc::infeasible,
                 std::to_string(alone) +
                     " modules without `attach` need a device each, there are " +
                     std::to_string(device_count),
                 "devices",
                 "nearest choice: " + std::to_string(alone) + " devices, or attach small modules"};
  return Partitioner(modules, std::move(topology).value(), device_count, microbatches).solve();
}

}  // namespace troupe::scheduler
