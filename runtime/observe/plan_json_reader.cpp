#include <algorithm>
#include <set>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "runtime/observe/plan_json.hpp"
#include "runtime/vocabulary/library_words.hpp"

namespace troupe::observe {

namespace {

using Json = nlohmann::json;

// Thrown and caught within this file only: a plan is read by nested functions, and one place turns
// every reason into an Error.
struct BadPlan : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::int32_t index_below(const Json& value, std::size_t count, const char* what) {
  const auto index = value.get<std::int64_t>();
  if (!value.is_number_integer() || index < 0 || static_cast<std::size_t>(index) >= count)
    throw BadPlan(std::string(what) + " " + value.dump() + " is not below " +
                  std::to_string(count));
  return static_cast<std::int32_t>(index);
}

ModuleKind read_kind(const std::string& name) {
  if (name == "encoder") return ModuleKind::encoder;
  if (name == "projector") return ModuleKind::projector;
  if (name == "llm") return ModuleKind::llm;
  if (name == "teacher") return ModuleKind::teacher;
  throw BadPlan("module kind '" + name + "' is unknown");
}

ModuleId read_module(const ModelGraph& model, const Json& name) {
  const auto id = model.find(name.get<std::string>());
  if (!id.valid()) throw BadPlan("module " + name.dump() + " is unknown");
  return id;
}

LayerId read_layer(const ModelGraph& model, const Json& json) {
  const auto module = read_module(model, json.at("module"));
  return {module, index_below(json.at("layer"), model.at(module).layers.size(), "layer")};
}

/// The devices that are on standby for a group, in the order of the plan.
std::vector<DeviceId> standby_devices(const ParallelPlan& plan, const ParameterGroup& group) {
  std::vector<DeviceId> devices;
  for (const Standby& standby : plan.standbys)
    if (group.tied ? standby.tied == group.name
                   : standby.tied.empty() && standby.layer == group.uses.front().layer)
      devices.push_back(standby.device);
  return devices;
}

/// Holders are rows of the uses' grids, each once, and behind them devices on standby.
void check_holders(const ParallelPlan& plan, const ParameterGroup& group) {
  if (group.elements < 1) throw BadPlan("group '" + group.name + "' has no elements");
  std::set<DeviceId> devices;
  for (const ParameterUse& use : group.uses)
    for (std::int32_t cp = 0; cp < plan.at(use.stage).grid.cp; ++cp)
      devices.insert(plan.at(use.stage).row(cp).front());
  if (devices.empty() || group.holders.size() < devices.size())
    throw BadPlan("holders of '" + group.name + "' are not the devices that use it");
  const auto users = group.holders.begin() + static_cast<std::ptrdiff_t>(devices.size());
  if (std::set(group.holders.begin(), users) != devices)
    throw BadPlan("holders of '" + group.name + "' are not the devices that use it");
  const auto standbys = standby_devices(plan, group);
  if (!std::equal(users, group.holders.end(), standbys.begin(), standbys.end()))
    throw BadPlan("the last holders of '" + group.name + "' are not those on standby for it");
  for (const DeviceId device : standbys)
    if (devices.contains(device) || std::count(standbys.begin(), standbys.end(), device) > 1)
      throw BadPlan("device " + std::to_string(device.value) + " holds '" + group.name + "' twice");
}

/// Plans of older runs, and those whose job lets the layout choose, say nothing of it: a chain.
SumOrder read_order(const Json& json, const char* key) {
  const auto name = json.find(key);
  if (name == json.end()) return SumOrder::chain;
  for (const SumOrder order :
       {SumOrder::chain, SumOrder::tree_by_node, SumOrder::nccl_chain, SumOrder::nccl})
    if (name->get<std::string>() == to_string(order)) return order;
  throw BadPlan("there is no sum in the order " + name->dump());
}

/// Plans of older runs have none.
std::vector<SplitElements> read_splits(const Json& json) {
  std::vector<SplitElements> splits;
  if (!json.contains("splits")) return splits;
  for (const auto& entry : json.at("splits"))
    splits.push_back(
        {entry.at("elements").get<std::int64_t>(), entry.at("parts").get<std::int64_t>()});
  return splits;
}

/// What tensor parallelism splits of a group: as the layer or the tied parameter says.
const std::vector<SplitElements>& splits_of(const ModelGraph& model, const ParameterGroup& group) {
  for (const TiedParameter& tied : model.tied)
    if (group.tied && tied.name == group.name) return tied.splits;
  const LayerId layer = group.uses.front().layer;
  return model.at(layer.module).layers[static_cast<std::size_t>(layer.layer)].splits;
}

ModelGraph read_model(const Json& json) {
  ModelGraph model;
  for (const auto& entry : json.at("modules")) {
    auto& module = model.modules.emplace_back();
    module.name = entry.at("name").get<std::string>();
    module.kind = read_kind(entry.at("kind").get<std::string>());
    module.freeze = entry.at("freeze").get<bool>();
    module.hidden_width = entry.at("hidden_width").get<std::int64_t>();
    module.output_width = entry.at("output_width").get<std::int64_t>();
    // Plans of causal llms, and all older ones, say nothing of it.
    if (const auto attention = entry.find("attention"); attention != entry.end()) {
      if (*attention != "modality") throw BadPlan("there is no attention " + attention->dump());
      module.attention = AttentionRule::modality;
    }
    module.moments_in_host = entry.value("moments_in_host", false);  // Likewise.
    module.parameters_in_host = entry.value("parameters_in_host", false);
    for (const auto& layer : entry.at("layers"))
      module.layers.push_back(
          {layer.at("name").get<std::string>(), layer.at("parameter_elements").get<std::int64_t>(),
           layer.at("constant_elements").get<std::int64_t>(), read_splits(layer)});
  }
  // Successors stand after their predecessors, so names resolve only now.
  for (std::size_t i = 0; i < model.modules.size(); ++i)
    for (const auto& next : json.at("modules")[i].at("next"))
      model.modules[i].next.push_back(read_module(model, next));
  for (const auto& entry : json.at("tied")) {
    auto& tied = model.tied.emplace_back();
    tied.name = entry.at("name").get<std::string>();
    tied.parameter_elements = entry.at("parameter_elements").get<std::int64_t>();
    tied.splits = read_splits(entry);
    for (const auto& layer : entry.at("layers")) tied.layers.push_back(read_layer(model, layer));
  }
  model.sums = read_order(json, "sums");
  return model;
}

LayerRun read_run(const ModelGraph& model, const Json& json) {
  LayerRun run{read_module(model, json.at("module")), {}};
  const auto& layers = json.at("layers");
  const auto count = model.at(run.module).layers.size();
  run.layers = {index_below(layers.at(0), count + 1, "layer"),
                index_below(layers.at(1), count + 1, "layer")};
  if (run.layers.begin >= run.layers.end)
    throw BadPlan("layers " + layers.at(0).dump() + " to " + layers.at(1).dump() + " are none");
  return run;
}

Stage read_stage(const ParallelPlan& plan, std::size_t replica_count, const Json& json) {
  Stage stage;
  stage.replica = ReplicaId{index_below(json.at("replica"), replica_count, "replica")};
  for (const auto& run : json.at("runs")) stage.runs.push_back(read_run(plan.model, run));
  for (const auto& device : json.at("devices"))
    stage.devices.push_back(DeviceId{index_below(device, plan.devices.size(), "device")});
  if (stage.runs.empty() || stage.devices.empty())
    throw BadPlan("a stage has no layers or no device");
  constexpr std::size_t kDegreeMax = 1 << 16;
  if (json.contains("tp"))  // Not in plans of older runs.
    stage.grid = {index_below(json.at("tp"), kDegreeMax, "tp"),
                  index_below(json.at("cp"), kDegreeMax, "cp")};
  if (std::ssize(stage.devices) != std::int64_t{stage.grid.tp} * stage.grid.cp)
    throw BadPlan("a stage of tp " + std::to_string(stage.grid.tp) + ", cp " +
                  std::to_string(stage.grid.cp) + " has " + std::to_string(stage.devices.size()) +
                  " devices");
  return stage;
}

/// Module groups, replicas and pipelines. Their stages are there already.
void read_replicas(const Json& json, ParallelPlan& plan) {
  for (const auto& entry : json.at("module_groups")) {
    auto& group = plan.module_groups.emplace_back();
    group.name = entry.at("name").get<std::string>();
    for (const auto& module : entry.at("modules"))
      group.modules.push_back(read_module(plan.model, module));
  }
  const std::size_t pipelines = json.at("pipelines").size();
  for (const auto& entry : json.at("replicas")) {
    auto& replica = plan.replicas.emplace_back();
    replica.group =
        ModuleGroupId{index_below(entry.at("group"), plan.module_groups.size(), "module group")};
    replica.pipeline = PipelineId{index_below(entry.at("pipeline"), pipelines, "pipeline")};
    for (const auto& stage : entry.at("stages"))
      replica.stages.push_back(StageId{index_below(stage, plan.stages.size(), "stage")});
    if (replica.stages.empty()) throw BadPlan("a replica has no stage");
  }
  for (const auto& entry : json.at("pipelines")) {
    auto& pipeline = plan.pipelines.emplace_back();
    for (const auto& replica : entry.at("replicas"))
      pipeline.replicas.push_back(ReplicaId{index_below(replica, plan.replicas.size(), "replica")});
    if (pipeline.replicas.empty()) throw BadPlan("a pipeline has no replica");
  }
}

RecordedPlan read_plan(const Json& json) {
  RecordedPlan recorded;
  auto& plan = recorded.plan;
  recorded.epoch_number = json.at("epoch_number").get<EpochNumber>();
  plan.model = read_model(json);
  for (const auto& slot : json.at("devices"))
    plan.devices.push_back(
        {NodeId{slot.at("node").get<std::int32_t>()}, slot.at("local_index").get<std::int32_t>()});
  for (const auto& stage : json.at("stages"))
    plan.stages.push_back(read_stage(plan, json.at("replicas").size(), stage));
  const auto stage_id = [&](const Json& value) {
    return StageId{index_below(value, plan.stages.size(), "stage")};
  };
  read_replicas(json, plan);
  // Plans of older runs have none. By reference: the library copies a deep value by recursion.
  static const Json none = Json::array();
  const auto standbys = json.find("standbys");
  for (const auto& entry : standbys == json.end() ? none : *standbys)
    plan.standbys.push_back(
        {DeviceId{index_below(entry.at("device"), plan.devices.size(), "device")},
         read_layer(plan.model, entry), entry.at("tied").get<std::string>()});
  for (const auto& entry : json.at("groups")) {
    auto& group = plan.groups.emplace_back();
    group.name = entry.at("name").get<std::string>();
    group.tied = entry.at("tied").get<bool>();
    group.elements = entry.at("elements").get<std::int64_t>();
    for (const auto& use : entry.at("uses"))
      group.uses.push_back({stage_id(use.at("stage")), read_layer(plan.model, use)});
    for (const auto& holder : entry.at("holders"))
      group.holders.push_back(DeviceId{index_below(holder, plan.devices.size(), "device")});
    check_holders(plan, group);
    group.order = read_order(entry, "sum");
    group.splits = splits_of(plan.model, group);
    group.standbys = static_cast<std::int32_t>(standby_devices(plan, group).size());
  }
  if (json.contains("leads"))
    for (const auto& lead : json.at("leads"))
      plan.leads.push_back(DeviceId{index_below(lead, plan.devices.size(), "device")});
  if (!plan.leads.empty() && plan.leads.size() != plan.devices.size())
    throw BadPlan("leads are not one per device");
  return recorded;
}

MicrobatchList read_microbatches(const Json& json, std::size_t unit_count) {
  MicrobatchList microbatches;
  for (const auto& entry : json) {
    auto& microbatch = microbatches.emplace_back();
    for (const auto& part : entry) {
      auto& samples = microbatch.parts.emplace_back().samples;
      for (const auto& sample : part) samples.push_back(index_below(sample, unit_count, "sample"));
    }
  }
  return microbatches;
}

constexpr std::size_t kIndexMax = std::size_t{1} << 30;

Action read_backward(const Json& json) {
  Action action;
  const auto kind = json.at(0).get<std::string>();
  if (kind != "B" && kind != "I" && kind != "W")
    throw BadPlan("backward '" + kind + "' is unknown");
  action.kind = kind == "B"   ? ActionKind::backward
                : kind == "I" ? ActionKind::backward_input
                              : ActionKind::backward_weight;
  action.stage = StageId{index_below(json.at(1), kIndexMax, "stage")};
  action.microbatch = MicrobatchId{index_below(json.at(2), kIndexMax, "microbatch")};
  action.part = PartId{index_below(json.at(3), kIndexMax, "part")};
  return action;
}

RecordedIteration read_iteration(const Json& json) {
  RecordedIteration iteration;
  iteration.step = json.at("step").get<std::int64_t>();
  iteration.epoch_number = json.at("epoch_number").get<EpochNumber>();
  iteration.ids = json.at("ids").get<std::vector<std::string>>();
  if (json.contains("pieces"))
    for (const auto& piece : json.at("pieces"))
      iteration.pieces.push_back({index_below(piece.at(0), iteration.ids.size(), "sample"),
                                  ModuleId{index_below(piece.at(1), kIndexMax, "module")},
                                  index_below(piece.at(2), kIndexMax, "item"),
                                  index_below(piece.at(3), kIndexMax, "number of items")});
  const std::size_t units = iteration.ids.size() + iteration.pieces.size();
  for (const auto& replica : json.at("replicas"))
    iteration.microbatches.push_back(read_microbatches(replica, units));
  for (const auto& action : json.at("backward"))
    iteration.backward.push_back(read_backward(action));
  return iteration;
}

template <class Value>
Result<Value> parse(std::string_view text, const char* what, Value (*read)(const Json&)) {
  const auto bad = [&](const std::string& why) {
    return Error{Errc::bad_data, std::string("not a recorded ") + what + ": " + why, "", ""};
  };
  const auto json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return bad("not valid JSON");
  try {
    return read(json);
  } catch (const Json::exception& error) {
    return bad(without_code(error.what()));
  } catch (const BadPlan& error) {
    return bad(without_code(error.what()));
  }
}

}  // namespace

Result<RecordedPlan> parse_plan(std::string_view text) { return parse(text, "plan", read_plan); }

Result<RecordedIteration> parse_iteration(std::string_view line) {
  return parse(line, "iteration", read_iteration);
}

}  // namespace troupe::observe
