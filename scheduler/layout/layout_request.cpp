#include "scheduler/layout/layout_request.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/vocabulary/joined.hpp"
#include "runtime/vocabulary/nearest_word.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/layout/layout_degrees.hpp"
#include "scheduler/layout/replica_candidates.hpp"

namespace troupe::scheduler {

namespace {

/// Numbers of devices that encoders may have together: a few hundred MB while a layout is searched.
constexpr double kEncoderWaysMax = 4e6;

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
  const auto& [schedule, own] = request.schedule;
  const auto& names = schedule_names();
  if (!own && std::find(names.begin(), names.end(), schedule) == names.end()) {
    const auto near = nearest_word(schedule, names);
    return wrong("no schedule is called '" + schedule + "'", "scheduler.schedule",
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

/// Encoders side by side are tried on every number of devices each.
Status check_encoders(const ModelGraph& model, const ClusterShape& cluster) {
  const double devices = double(cluster.nodes) * double(cluster.devices_per_node);
  double ways = 1;
  std::size_t encoders = 0;
  for (const auto& module : model.modules)
    if (module.kind == ModuleKind::encoder || module.kind == ModuleKind::teacher) {
      ways *= std::min(devices, static_cast<double>(module.layers.size()));
      ++encoders;
    }
  if (ways <= kEncoderWaysMax) return Done{};
  return none("there are too many ways to place " + to_string(encoders) + " encoders on " +
                  to_string(static_cast<std::int64_t>(devices)) + " devices to try them all",
              "parallel",
              "write the layout by hand ([[parallel.pipelines]]), or plan for fewer devices");
}

Status check_tolerance(const AutoLayoutRequest& request) {
  const std::int32_t most = request.cluster.nodes;
  if (request.fault_tolerance >= 0 && request.fault_tolerance < most) return Done{};
  return none("to keep everything through the loss of " + to_string(request.fault_tolerance) +
                  (request.fault_tolerance == 1 ? " node" : " nodes") + " takes holders on " +
                  to_string(request.fault_tolerance + 1) + " nodes; the cluster has " +
                  to_string(most),
              "cluster.fault_tolerance",
              "nearest choice: cluster.fault_tolerance = " + to_string(most - 1));
}

std::string known_degrees(const std::vector<Parallelism>& list) {
  std::string text;
  for (const auto p : list)
    text += (text.empty() ? "tp " : "; tp ") + to_string(p.tp) + " cp " + to_string(p.cp);
  return text;
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
  const auto known = request.model->parallelisms(module);
  if (tp * cp > request.cluster.devices_per_node) {
    std::int32_t widest = 1;
    for (const auto p : known)
      if (p.tp * p.cp <= request.cluster.devices_per_node) widest = std::max(widest, p.tp * p.cp);
    return none("tp x cp = " + to_string(tp * cp) + " leaves the node: a node has " +
                    to_string(request.cluster.devices_per_node) + " devices",
                key, "nearest choice: tp x cp = " + to_string(widest));
  }
  if (std::none_of(known.begin(), known.end(), [&](auto p) { return allows(pins, p); }))
    return Error{Errc::not_found,
                 "no profile of " + name + " at tp " + to_string(tp) + " cp " + to_string(cp) +
                     "; there is " + known_degrees(known),
                 key, "pin one of these, or leave the pin out"};
  return Done{};
}

/// A pin of tp or cp, as the job file names it.
struct DegreePin {
  std::string key;
  std::int32_t degree = 0;

  std::string text() const { return key + " = " + to_string(degree); }
};

/// Encoders and projectors are laid out with one tp and one cp; so their pins may not differ, and
/// there must be a profile at what they ask for together.
Status check_encoder_pins(const AutoLayoutRequest& request) {
  std::vector<DegreePin> asked;
  for (const auto degree : {&ModulePins::tp, &ModulePins::cp}) {
    std::optional<DegreePin> first;
    for (const auto& [name, pins] : request.pins) {
      if (request.model->graph().find(name) == request.model->graph().llm()) continue;
      if (!(pins.*degree)) continue;
      const DegreePin own{"parallel." + name + (degree == &ModulePins::tp ? ".tp" : ".cp"),
                          *(pins.*degree)};
      if (first && first->degree != own.degree)
        return none(first->text() + " and " + own.text() +
                        " exclude each other: encoders and projectors share tp and cp",
                    own.key, "nearest choice: " + own.key + " = " + to_string(first->degree));
      if (!first) first = own;
    }
    if (first) asked.push_back(*first);
  }
  if (asked.empty() || !side_degrees(request, Side::encoder).empty()) return Done{};
  std::vector<std::string> texts;
  for (const auto& pin : asked) texts.push_back(pin.text());
  const std::string text = joined_by_and(texts);
  AutoLayoutRequest free = request;
  free.pins.clear();
  return none(text + " leave no degrees that all encoders and projectors have on nodes of " +
                  to_string(request.cluster.devices_per_node) + " devices",
              asked.back().key,
              "nearest choice: one of " + known_degrees(side_degrees(free, Side::encoder)));
}

/// Modules that are joined have one number of replicas: a projector goes along with its encoder.
Status check_joined_numbers(const AutoLayoutRequest& request, const std::vector<NumberPin>& pins) {
  for (const auto& modules : joined_encoders(request.model->graph())) {
    const NumberPin* first = nullptr;
    for (const auto& own : pins) {
      if (std::find(modules.begin(), modules.end(), own.module) == modules.end()) continue;
      if (!first) first = &own;
      if (own.number != first->number)
        return none(first->text() + " and " + own.text() +
                        " exclude each other: an encoder and its projector have replicas together",
                    own.key, "nearest choice: " + own.key + " = " + to_string(first->number));
    }
  }
  return Done{};
}

/// Numbers that differ put module groups on devices of their own, at least one for each replica;
/// where encoders and llm take turns, encoders may stand on the llm's.
Status check_room(const AutoLayoutRequest& request, const std::vector<NumberPin>& pins) {
  const ModelGraph& model = request.model->graph();
  const std::int32_t devices = request.cluster.devices();
  const auto stage_devices = [&](const std::vector<ModuleId>& modules) {
    std::int32_t most = 1;
    for (const auto& [name, own] : request.pins)
      if (std::find(modules.begin(), modules.end(), model.find(name)) != modules.end())
        most = std::max(most, own.tp.value_or(1) * own.cp.value_or(1));
    return most;
  };
  std::int32_t apart = std::numeric_limits<std::int32_t>::max(), colocated = apart;
  for (const auto& groups : module_groupings(request)) {
    std::int32_t all = 0, most = 0;
    for (const auto& modules : groups) {
      const auto own = stage_devices(modules) * pinned_number(request, modules).value_or(1);
      all += own;
      most = std::max(most, own);
    }
    apart = std::min(apart, all);
    colocated = std::min(colocated, most);
  }
  const bool phases = allows_colocated(request);
  const std::int32_t least = phases ? colocated : apart;
  if (least <= devices) return Done{};
  std::vector<std::string> texts;
  for (const auto& own : pins) texts.push_back(own.text());
  const std::string text = joined_by_and(texts);
  const auto largest = std::max_element(
      pins.begin(), pins.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
  const std::int32_t smaller =
      largest->number - (least - devices) / stage_devices({largest->module});
  return none(
      text + " take at least " + to_string(least) + " devices, there are " + to_string(devices) +
          (phases ? ""
                  : ": modules of different numbers share none under " + request.schedule.name),
      largest->key,
      "nearest choice: " + to_string(least) + " devices" +
          (smaller >= 1 ? ", or " + largest->key + " = " + to_string(smaller)
                        : ", or one number for all modules") +
          (!phases && colocated <= devices
               ? ", or scheduler.schedule = \"three-phase\", under which encoders may stand "
                 "on the llm's devices"
               : ""));
}

Status check_numbers(const AutoLayoutRequest& request) {
  const auto pins = number_pins(request);
  const std::int64_t devices = request.cluster.devices();
  const std::int64_t most = std::min(devices, request.global_batch);
  for (const auto& own : pins) {
    if (own.number <= most) continue;
    return none(to_string(own.number) + " replicas of " +
                    request.model->graph().at(own.module).name + " need as many " +
                    (most == devices ? "devices" : "samples per step") + ", there are " +
                    to_string(most),
                own.key, "nearest choice: dp = " + to_string(most));
  }
  if (auto checked = check_joined_numbers(request, pins); !checked.ok()) return checked;
  if (allows_one_number(request)) return Done{};
  if (request.one_number)
    return none("the numbers of replicas that are pinned differ, and one for all is asked for",
                pins.front().key, "pin one number for all modules");
  return check_room(request, pins);
}

Status check_pins(const AutoLayoutRequest& request) {
  const ModelGraph& model = request.model->graph();
  std::vector<std::string> names;
  for (const auto& module : model.modules) names.push_back(module.name);
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
  }
  if (auto checked = check_encoder_pins(request); !checked.ok()) return checked;
  return check_numbers(request);
}

}  // namespace

Status check_request(const AutoLayoutRequest& request) {
  if (auto checked = check_counts(request); !checked.ok()) return checked;
  if (auto checked = check_layers(request.model->graph()); !checked.ok()) return checked;
  if (auto checked = check_encoders(request.model->graph(), request.cluster); !checked.ok())
    return checked;
  if (auto checked = check_tolerance(request); !checked.ok()) return checked;
  return check_pins(request);
}

std::string byte_text(double bytes) {
  const auto tenths = static_cast<std::int64_t>(std::ceil(bytes / 1e8));
  if (tenths < 10) return to_string(static_cast<std::int64_t>(std::ceil(bytes / 1e6))) + " MB";
  return to_string(tenths / 10) + "." + to_string(tenths % 10) + " GB";
}

}  // namespace troupe::scheduler
