#include "scheduler/layout/layout_degrees.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "scheduler/layout/layout.hpp"
#include "scheduler/layout/layout_score.hpp"
#include "scheduler/layout/replica_candidates.hpp"

namespace troupe::scheduler {

namespace {

const ModulePins& pins_of(const AutoLayoutRequest& request, const std::string& module) {
  static const ModulePins kFree;
  const auto found = request.pins.find(module);
  return found == request.pins.end() ? kFree : found->second;
}

bool on_side(const ModelGraph& model, ModuleId module, Side side) {
  return (module == model.llm()) == (side == Side::llm);
}

/// Encoder side and llm as the layout search sees them: a module each.
class DegreeProblem {
 public:
  DegreeProblem(const AutoLayoutRequest& request, LayoutScorer& scorer)
      : request_(request), model_(request.model->graph()), scorer_(scorer) {}

  std::optional<LayoutInput> of(Placement placement) {
    const auto single = scorer_.weights(1, {});
    if (!single.ok()) return std::nullopt;
    LayoutInput input;
    input.modules = {side("encoders", Side::encoder, single.value()),
                     side("llm", Side::llm, single.value())};
    input.modules.front().next = {1};
    for (const Side s : {Side::encoder, Side::llm})
      if (!set_degrees(s, single.value(), input.modules[s == Side::llm ? 1 : 0]))
        return std::nullopt;
    input.placement = placement;
    input.counts_rows = placement == Placement::shared;
    set_samples(single.value(), input);
    input.devices = request_.cluster.devices();
    input.devices_per_node = request_.cluster.devices_per_node;
    input.device_memory_bytes = request_.device_memory.count() > 0
                                    ? static_cast<double>(request_.device_memory.count())
                                    : 1e18;
    input.global_batch = request_.global_batch;
    for (std::int64_t size = 1; size <= request_.global_batch; size *= 2)
      input.microbatch_sizes.push_back(size);
    input.node_gigabytes_per_s = request_.prediction.speeds.node.gigabytes_per_s;
    input.network_gigabytes_per_s = request_.prediction.speeds.network.gigabytes_per_s;
    return input;
  }

 private:
  double sum(const LayerWeights& weights, Side side,
             const std::vector<double> LayerWeights::*values) const {
    double total = 0;
    for (std::size_t i = 0; i < weights.layers.size(); ++i)
      if (on_side(model_, weights.layers[i].module, side)) total += (weights.*values)[i];
    return total;
  }

  LayoutModule side(const std::string& name, Side which, const LayerWeights& weights) const {
    LayoutModule module;
    module.name = name;
    module.layers = 0;
    module.freeze = true;
    for (std::size_t m = 0; m < model_.modules.size(); ++m) {
      if (!on_side(model_, ModuleId{m}, which)) continue;
      module.layers += static_cast<std::int32_t>(model_.modules[m].layers.size());
      module.freeze = module.freeze && model_.modules[m].freeze;
    }
    module.state_bytes = sum(weights, which, &LayerWeights::state_bytes);
    if (which == Side::encoder) set_moved(weights, module);
    return module;
  }

  /// What of all encoders is in host memory while the llm computes, as if no module were cut.
  void set_moved(const LayerWeights& weights, LayoutModule& module) const {
    if (!weights.leaving_bytes.empty())
      module.leaving_bytes = sum(weights, Side::encoder, &LayerWeights::leaving_bytes);
    if (weights.staying_bytes.empty()) return;
    const double kept = sum(weights, Side::encoder, &LayerWeights::activation_bytes);
    double offloaded = kept;
    for (std::size_t i = 0; i < weights.layers.size(); ++i) {
      const auto& [id, layer] = weights.layers[i];
      const bool ends = static_cast<std::size_t>(layer) + 1 == model_.at(id).layers.size();
      if (ends && on_side(model_, id, Side::encoder)) offloaded -= weights.staying_bytes[i];
    }
    module.offloaded_share = kept > 0 ? std::max(0.0, offloaded / kept) : 0;
  }

  /// Degrees that all modules of a side have a profile for, and what they gain.
  bool set_degrees(Side which, const LayerWeights& single, LayoutModule& module) {
    std::set<std::int32_t> tps, cps;
    const double base_ms = sum(single, which, &LayerWeights::work_ms);
    for (const auto p : side_degrees(request_, which)) {
      std::vector<Parallelism> degrees(model_.modules.size());
      for (std::size_t m = 0; m < degrees.size(); ++m)
        if (on_side(model_, ModuleId{m}, which)) degrees[m] = p;
      const auto weights = scorer_.weights(1, degrees);
      if (!weights.ok()) continue;
      const double ms = sum(weights.value(), which, &LayerWeights::work_ms);
      module.speedup[{p.tp, p.cp}] = ms > 0 ? base_ms / ms : 1;
      tps.insert(p.tp);
      cps.insert(p.cp);
    }
    // The search pairs every tp with every cp: a pair without a profile must not pay.
    for (const auto tp : tps)
      for (const auto cp : cps) module.speedup.try_emplace({tp, cp}, 1e-9);
    module.valid_tp.assign(tps.begin(), tps.end());
    module.valid_cp.assign(cps.begin(), cps.end());
    return !tps.empty();
  }

  /// The search knows modules by their time per sample; the mean serves. The weights know already
  /// what is frozen, so all of it counts as forward, which the search always takes in full.
  void set_samples(const LayerWeights& single, LayoutInput& input) const {
    const double size =
        std::max(1.0, static_cast<double>(request_.global_batch) /
                          static_cast<double>(std::max<std::int64_t>(request_.microbatches, 1)));
    // Between modules apart rows would cost time, which is left to the simulator here.
    double rows = 0;
    for (std::size_t i = 0; i < single.layers.size() && input.counts_rows; ++i)
      if (single.layers[i].module == model_.llm()) rows += single.crossing_bytes[i].most;
    auto& sample = input.samples.emplace_back();
    for (const Side s : {Side::encoder, Side::llm})
      sample.push_back({sum(single, s, &LayerWeights::work_ms) / size, 0,
                        sum(single, s, &LayerWeights::activation_bytes) / size,
                        s == Side::encoder ? rows / size : 0});
  }

  const AutoLayoutRequest& request_;
  const ModelGraph& model_;
  LayoutScorer& scorer_;
};

/// Degrees per module, or nothing where the search finds no layout.
std::vector<Parallelism> found_degrees(const AutoLayoutRequest& request, LayoutScorer& scorer,
                                       Placement placement) {
  const auto input = degree_problem(request, scorer, placement);
  if (!input) return {};
  const auto choice = search_layout(*input);
  if (!choice.ok()) return {};
  const ModelGraph& model = request.model->graph();
  std::vector<Parallelism> degrees;
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const Side which = on_side(model, ModuleId{m}, Side::llm) ? Side::llm : Side::encoder;
    const auto& own = choice.value().modules[which == Side::llm ? 1 : 0];
    const auto known = side_degrees(request, which);
    degrees.push_back({own.tp, own.cp});
    if (std::find(known.begin(), known.end(), degrees.back()) == known.end()) return {};
  }
  return degrees;
}

}  // namespace

std::optional<LayoutInput> degree_problem(const AutoLayoutRequest& request, LayoutScorer& scorer,
                                          Placement placement) {
  return DegreeProblem(request, scorer).of(placement);
}

bool allows(const ModulePins& pins, Parallelism p) {
  return (!pins.tp || *pins.tp == p.tp) && (!pins.cp || *pins.cp == p.cp);
}

std::vector<Parallelism> side_degrees(const AutoLayoutRequest& request, Side side) {
  const ModelGraph& model = request.model->graph();
  std::vector<Parallelism> degrees;
  bool first = true;
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    if (!on_side(model, ModuleId{m}, side)) continue;
    auto own = request.model->parallelisms(ModuleId{m});
    const ModulePins& pins = pins_of(request, model.modules[m].name);
    std::erase_if(own, [&](Parallelism p) {
      return p.tp * p.cp > request.cluster.devices_per_node || !allows(pins, p) ||
             (!first && std::find(degrees.begin(), degrees.end(), p) == degrees.end());
    });
    degrees = std::move(own);
    first = false;
  }
  return degrees;
}

std::vector<std::vector<Parallelism>> degree_choices(const AutoLayoutRequest& request,
                                                     LayoutScorer& scorer) {
  const ModelGraph& model = request.model->graph();
  const std::size_t modules = model.modules.size();
  if (!request.planned_only) return {std::vector<Parallelism>(modules)};
  const auto llm = side_degrees(request, Side::llm);
  const auto encoders = modules > 1 ? side_degrees(request, Side::encoder) : llm;
  std::vector<std::vector<Parallelism>> choices;
  for (const auto p : llm)
    if (std::find(encoders.begin(), encoders.end(), p) != encoders.end())
      choices.emplace_back(modules, p);
  for (const auto placement : {Placement::disjoint, Placement::shared}) {
    if (modules == 1 || (placement == Placement::shared && !allows_colocated(request))) continue;
    auto found = found_degrees(request, scorer, placement);
    if (!found.empty() && std::find(choices.begin(), choices.end(), found) == choices.end())
      choices.push_back(std::move(found));
  }
  if (choices.size() < 2) {
    // What the search likes, which knows no pins of pipelines, may leave no room for them.
    const auto smaller = [](Parallelism a, Parallelism b) { return a.tp * a.cp < b.tp * b.cp; };
    std::vector<Parallelism> least(modules,
                                   *std::min_element(encoders.begin(), encoders.end(), smaller));
    least[model.llm().index()] = *std::min_element(llm.begin(), llm.end(), smaller);
    if (choices.empty() || choices.front() != least) choices.push_back(std::move(least));
  }
  return choices;
}

}  // namespace troupe::scheduler
