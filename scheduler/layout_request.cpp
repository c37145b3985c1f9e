#include "scheduler/layout_request.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>

#include "runtime/vocabulary/nearest_word.hpp"
#include "scheduler/layout.hpp"
#include "scheduler/layout_score.hpp"
#include "scheduler/schedules.hpp"

namespace troupe::scheduler {

namespace {

using std::to_string;

Error wrong(std::string message, std::string where, std::string fix) {
  return {Errc::invalid_argument, std::move(message), std::move(where), std::move(fix)};
}

Error none(std::string message, std::string where, std::string fix) {
  return {Errc::infeasible, std::move(message), std::move(where), std::move(fix)};
}

Status check_counts(const AutoLayoutRequest& request) {
  if (request.samples.empty())
    return wrong("there are no samples to plan from", "data", "give at least one good sample");
  if (request.global_batch < 1 || request.microbatches < 1)
    return wrong("a batch and its microbatches must be at least 1", "train",
                 "set train.global_batch_size and train.microbatches to at least 1");
  if (request.cluster.nodes < 1 || request.cluster.devices_per_node < 1)
    return wrong("a cluster of " + to_string(request.cluster.nodes) + " nodes with " +
                     to_string(request.cluster.devices_per_node) + " devices holds no model",
                 "cluster", "use at least one node with one device");
  const auto& names = schedule_names();
  if (std::find(names.begin(), names.end(), request.schedule) == names.end()) {
    const auto near = nearest_word(request.schedule, names);
    return wrong("no schedule is called '" + request.schedule + "'", "scheduler.schedule",
                 near.empty() ? "use \"1f1b\"" : "did you mean \"" + near + "\"?");
  }
  return Done{};
}

Status check_layers(const ModelGraph& model) {
  std::size_t layers = 0;
  const ModuleSpec* longest = nullptr;
  for (const auto& module : model.modules) {
    layers += module.layers.size();
    if (!longest || module.layers.size() > longest->layers.size()) longest = &module;
  }
  if (layers <= kAutoLayoutLayersMax) return Done{};
  const auto others = layers - longest->layers.size();
  return none("the model has " + to_string(layers) + " layers, most of them in " + longest->name +
                  "; layouts are searched for at most " + to_string(kAutoLayoutLayersMax),
              "modules." + longest->name,
              others < kAutoLayoutLayersMax
                  ? "nearest choice: " + to_string(kAutoLayoutLayersMax - others) + " layers in " +
                        longest->name + ", counting its first and last special ones"
                  : "take layers away");
}

Status check_tolerance(const AutoLayoutRequest& request) {
  const auto most = std::min<std::int64_t>(request.cluster.nodes, request.global_batch);
  if (request.fault_tolerance >= 0 && request.fault_tolerance < most) return Done{};
  const bool by_nodes = most == request.cluster.nodes;
  return none("to survive " + to_string(request.fault_tolerance) + " lost nodes takes " +
                  to_string(request.fault_tolerance + 1) + " pipelines on nodes of their own; " +
                  (by_nodes ? "the cluster has " + to_string(most) + " nodes"
                            : "a batch of " + to_string(most) + " samples feeds no more"),
              "cluster.fault_tolerance",
              "nearest choice: cluster.fault_tolerance = " + to_string(most - 1));
}

std::string known_degrees(const std::vector<Parallelism>& list) {
  std::string text;
  for (const auto p : list)
    text += (text.empty() ? "tp " : "; tp ") + to_string(p.tp) + " cp " + to_string(p.cp);
  return text;
}

bool allows(const ModulePins& pins, Parallelism p) {
  return (!pins.tp || *pins.tp == p.tp) && (!pins.cp || *pins.cp == p.cp);
}

const ModulePins& pins_of(const AutoLayoutRequest& request, const std::string& module) {
  static const ModulePins kFree;
  const auto found = request.pins.find(module);
  return found == request.pins.end() ? kFree : found->second;
}

Status check_degrees(const AutoLayoutRequest& request, ModuleId module, const ModulePins& pins) {
  const auto& name = request.model->graph().at(module).name;
  const std::int32_t tp = pins.tp.value_or(1), cp = pins.cp.value_or(1);
  const std::string key = std::string("parallel.") + name + (pins.tp && tp > 1 ? ".tp" : ".cp");
  if (!request.planned_only && tp * cp > 1)
    return none("a stage of " + to_string(tp * cp) +
                    " devices cannot run on this cluster: one "
                    "device runs a stage",
                key,
                "nearest choice: tp = 1 and cp = 1; --cluster plans for machines that are "
                "not here");
  if (tp * cp > request.cluster.devices_per_node)
    return none("tp x cp = " + to_string(tp * cp) + " leaves the node: a node has " +
                    to_string(request.cluster.devices_per_node) + " devices",
                key, "nearest choice: tp x cp = " + to_string(request.cluster.devices_per_node));
  const auto known = request.model->parallelisms(module);
  if (std::none_of(known.begin(), known.end(), [&](auto p) { return allows(pins, p); }))
    return Error{Errc::not_found,
                 "no profile of " + name + " at tp " + to_string(tp) + " cp " + to_string(cp) +
                     "; there is " + known_degrees(known),
                 key, "pin one of these, or leave the pin out"};
  return Done{};
}

Status check_pins(const AutoLayoutRequest& request) {
  const ModelGraph& model = request.model->graph();
  std::vector<std::string> names;
  for (const auto& module : model.modules) names.push_back(module.name);
  const std::pair<std::string, std::int32_t>* dp = nullptr;
  std::vector<std::pair<std::string, std::int32_t>> dps;
  for (const auto& [name, pins] : request.pins) {
    const std::string key = "parallel." + name;
    const ModuleId module = model.find(name);
    if (!module.valid()) {
      const auto near = nearest_word(name, names);
      return wrong(
          "no module is called '" + name + "'", key,
          near.empty() ? "name a module of the job" : "did you mean parallel." + near + "?");
    }
    for (const auto& degree : {pins.tp, pins.cp, pins.pp, pins.dp})
      if (degree && *degree < 1)
        return wrong("a degree of " + to_string(*degree) + " is no degree", key,
                     "use at least 1, or leave it out");
    if (auto checked = check_degrees(request, module, pins); !checked.ok()) return checked;
    const auto layers = static_cast<std::int32_t>(model.at(module).layers.size());
    if (pins.pp && *pins.pp > layers)
      return none(name + " has " + to_string(layers) + " layers, which are too few for " +
                      to_string(*pins.pp) + " stages",
                  key + ".pp", "nearest choice: " + key + ".pp = " + to_string(layers));
    if (pins.dp) dps.emplace_back(key + ".dp", *pins.dp);
  }
  for (const auto& own : dps) {
    if (!dp) dp = &own;
    if (own.second != dp->second)
      return none(dp->first + " = " + to_string(dp->second) + " and " + own.first + " = " +
                      to_string(own.second) +
                      " contradict each other: each pipeline holds all modules once",
                  own.first, "nearest choice: " + own.first + " = " + to_string(dp->second));
  }
  if (!dp) return Done{};
  const std::int64_t units =
      request.fault_tolerance > 0 ? request.cluster.nodes : request.cluster.devices();
  const std::int64_t most = std::min(units, request.global_batch);
  const std::int64_t least = request.fault_tolerance + 1;
  if (dp->second <= most && dp->second >= least) return Done{};
  return none(dp->second < least
                  ? to_string(dp->second) + " pipelines do not survive " +
                        to_string(request.fault_tolerance) + " lost nodes"
                  : to_string(dp->second) + " pipelines need as many " +
                        (most == units ? request.fault_tolerance > 0 ? "nodes" : "devices"
                                       : "samples per step") +
                        ", there are " + to_string(most),
              dp->first, "nearest choice: dp = " + to_string(dp->second < least ? least : most));
}

/// Encoder side and llm as the layout search sees them: a module per connected encoder.
class DegreeSearch {
 public:
  explicit DegreeSearch(const AutoLayoutRequest& request)
      : request_(request), model_(request.model->graph()) {}

  /// Degrees per module, or nothing where the search finds no layout.
  std::vector<Parallelism> run() {
    const LayoutScorer scorer(request_);
    const auto single = scorer.weights(request_.fault_tolerance + 1, {});
    if (!single.ok()) return {};
    LayoutInput input;
    input.modules = {side("encoders", Side::encoder, single.value()),
                     side("llm", Side::llm, single.value())};
    input.modules.front().next = {1};
    for (const Side s : {Side::encoder, Side::llm})
      if (!set_degrees(s, single.value(), scorer, input.modules[s == Side::llm ? 1 : 0])) return {};
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
    const auto choice = search_layout(input);
    if (!choice.ok()) return {};
    std::vector<Parallelism> degrees;
    for (const auto& module : model_.modules) {
      const auto& own = choice.value().modules[module.kind == ModuleKind::llm ? 1 : 0];
      degrees.push_back({own.tp, own.cp});
    }
    return degrees;
  }

 private:
  bool on_side(ModuleId module, Side side) const {
    return (module == model_.llm()) == (side == Side::llm);
  }

  double sum(const LayerWeights& weights, Side side,
             const std::vector<double> LayerWeights::*values) const {
    double total = 0;
    for (std::size_t i = 0; i < weights.layers.size(); ++i)
      if (on_side(weights.layers[i].module, side)) total += (weights.*values)[i];
    return total;
  }

  LayoutModule side(const std::string& name, Side which, const LayerWeights& weights) const {
    LayoutModule module;
    module.name = name;
    module.layers = 0;
    module.freeze = true;
    for (std::size_t m = 0; m < model_.modules.size(); ++m) {
      if (!on_side(ModuleId{m}, which)) continue;
      module.layers += static_cast<std::int32_t>(model_.modules[m].layers.size());
      module.freeze = module.freeze && model_.modules[m].freeze;
    }
    module.state_bytes = sum(weights, which, &LayerWeights::state_bytes);
    return module;
  }

  /// Degrees that all modules of a side have a profile for, and what they gain.
  bool set_degrees(Side which, const LayerWeights& single, const LayoutScorer& scorer,
                   LayoutModule& module) const {
    std::set<std::int32_t> tps, cps;
    const double base_ms = sum(single, which, &LayerWeights::work_ms);
    for (const auto p : request_.model->parallelisms(model_.llm())) {
      bool known = p.tp * p.cp <= request_.cluster.devices_per_node;
      for (std::size_t m = 0; m < model_.modules.size(); ++m) {
        if (!on_side(ModuleId{m}, which)) continue;
        const auto own = request_.model->parallelisms(ModuleId{m});
        known = known && std::find(own.begin(), own.end(), p) != own.end() &&
                allows(pins_of(request_, model_.modules[m].name), p);
      }
      if (!known) continue;
      std::vector<Parallelism> degrees(model_.modules.size());
      for (std::size_t m = 0; m < degrees.size(); ++m)
        if (on_side(ModuleId{m}, which)) degrees[m] = p;
      const auto weights = scorer.weights(request_.fault_tolerance + 1, degrees);
      if (!weights.ok()) continue;
      const double ms = sum(weights.value(), which, &LayerWeights::work_ms);
      module.speedup[{p.tp, p.cp}] = ms > 0 ? base_ms / ms : 1;
      tps.insert(p.tp);
      cps.insert(p.cp);
    }
    module.valid_tp.assign(tps.begin(), tps.end());
    module.valid_cp.assign(cps.begin(), cps.end());
    return !tps.empty();
  }

  /// The search knows modules by their time per sample; the mean serves.
  void set_samples(const LayerWeights& single, LayoutInput& input) const {
    const auto pipelines = request_.fault_tolerance + 1;
    const double size =
        std::max(1.0, static_cast<double>(request_.global_batch) / pipelines /
                          static_cast<double>(std::max<std::int64_t>(request_.microbatches, 1)));
    auto& sample = input.samples.emplace_back();
    for (const Side s : {Side::encoder, Side::llm}) {
      const double ms = sum(single, s, &LayerWeights::work_ms) / size;
      sample.push_back(
          {ms / 3, ms * 2 / 3, sum(single, s, &LayerWeights::activation_bytes) / size, 0});
    }
  }

  const AutoLayoutRequest& request_;
  const ModelGraph& model_;
};

}  // namespace

Status check_request(const AutoLayoutRequest& request) {
  if (auto checked = check_counts(request); !checked.ok()) return checked;
  if (auto checked = check_layers(request.model->graph()); !checked.ok()) return checked;
  if (auto checked = check_tolerance(request); !checked.ok()) return checked;
  return check_pins(request);
}

std::vector<std::vector<Parallelism>> degree_choices(const AutoLayoutRequest& request) {
  const ModelGraph& model = request.model->graph();
  const std::size_t modules = model.modules.size();
  if (!request.planned_only) return {std::vector<Parallelism>(modules)};
  std::vector<std::vector<Parallelism>> choices;
  for (const auto p : request.model->parallelisms(model.llm())) {
    bool possible = request.cluster.devices_per_node % (p.tp * p.cp) == 0;
    for (std::size_t m = 0; m < modules; ++m) {
      const auto own = request.model->parallelisms(ModuleId{m});
      possible = possible && std::find(own.begin(), own.end(), p) != own.end() &&
                 allows(pins_of(request, model.modules[m].name), p);
    }
    if (possible) choices.emplace_back(modules, p);
  }
  if (modules > 1) {
    auto found = DegreeSearch(request).run();
    if (!found.empty() && std::find(choices.begin(), choices.end(), found) == choices.end())
      choices.push_back(std::move(found));
  }
  return choices;
}

std::string byte_text(double bytes) {
  const auto tenths = static_cast<std::int64_t>(std::ceil(bytes / 1e8));
  if (tenths < 10) return to_string(static_cast<std::int64_t>(std::ceil(bytes / 1e6))) + " MB";
  return to_string(tenths / 10) + "." + to_string(tenths % 10) + " GB";
}

}  // namespace troupe::scheduler
