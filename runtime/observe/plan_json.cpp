#include "runtime/observe/plan_json.hpp"

#include <nlohmann/json.hpp>

#include "runtime/observe/trace_names.hpp"

namespace troupe::observe {

namespace {

using Json = nlohmann::ordered_json;

const char* kind_name(ModuleKind kind) {
  switch (kind) {
    case ModuleKind::encoder: return "encoder";
    case ModuleKind::projector: return "projector";
    case ModuleKind::llm: return "llm";
    case ModuleKind::teacher: return "teacher";
  }
  return "llm";
}

template <class Tag>
Json numbers(const std::vector<Id<Tag>>& ids) {
  Json list = Json::array();
  for (const auto id : ids) list.push_back(id.value);
  return list;
}

// One object per value, by `one`.
template <class Value, class Function>
Json list_of(const std::vector<Value>& values, Function one) {
  Json list = Json::array();
  for (const auto& value : values) list.push_back(one(value));
  return list;
}

/// What tensor-parallel ranks share: elements, and pieces that may not be cut.
Json splits_json(const std::vector<SplitElements>& splits) {
  return list_of(splits, [](const SplitElements& split) -> Json {
    return {{"elements", split.elements}, {"parts", split.parts}};
  });
}

Json model_json(const ModelGraph& model) {
  return list_of(model.modules, [&](const ModuleSpec& module) -> Json {
    Json json{
        {"name", module.name},
        {"kind", kind_name(module.kind)},
        {"freeze", module.freeze},
        {"next", list_of(module.next, [&](ModuleId id) -> Json { return model.at(id).name; })},
        {"hidden_width", module.hidden_width},
        {"output_width", module.output_width},
        {"layers", list_of(module.layers, [](const LayerSpec& layer) -> Json {
           return {{"name", layer.name},
                   {"parameter_elements", layer.parameter_elements},
                   {"constant_elements", layer.constant_elements},
                   {"splits", splits_json(layer.splits)}};
         })}};
    if (module.attention == AttentionRule::modality) json["attention"] = "modality";
    if (module.moments_in_host) json["moments_in_host"] = true;
    if (module.parameters_in_host) json["parameters_in_host"] = true;
    return json;
  });
}

Json layer_json(const ModelGraph& model, LayerId layer) {
  return {{"module", model.at(layer.module).name}, {"layer", layer.layer}};
}

Json stages_json(const ParallelPlan& plan) {
  const auto names = stage_names(plan);
  Json list = Json::array();
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const auto& stage = plan.stages[i];
    list.push_back(
        {{"name", names[i]},
         {"replica", stage.replica.value},
         {"pipeline", plan.pipeline_of(StageId{i}).value},  // For readers; follows from the rest.
         {"runs", list_of(stage.runs,
                          [&](const LayerRun& run) -> Json {
                            return {{"module", plan.model.at(run.module).name},
                                    {"layers", Json::array({run.layers.begin, run.layers.end})}};
                          })},
         {"devices", numbers(stage.devices)},
         {"tp", stage.grid.tp},
         {"cp", stage.grid.cp}});
  }
  return list;
}

Json groups_json(const ParallelPlan& plan) {
  return list_of(plan.groups, [&](const ParameterGroup& group) -> Json {
    return {{"name", group.name},
            {"tied", group.tied},
            {"elements", group.elements},
            {"uses", list_of(group.uses,
                             [&](const ParameterUse& use) -> Json {
                               auto json = layer_json(plan.model, use.layer);
                               json["stage"] = use.stage.value;
                               return json;
                             })},
            {"holders", numbers(group.holders)},
            {"sum", std::string(to_string(group.order))}};
  });
}

Json standbys_json(const ParallelPlan& plan) {
  return list_of(plan.standbys, [&](const Standby& standby) -> Json {
    auto json = layer_json(plan.model, standby.layer);
    json["tied"] = standby.tied;
    json["device"] = standby.device.value;
    return json;
  });
}

Json microbatches_json(const MicrobatchList& microbatches) {
  return list_of(microbatches, [](const Microbatch& microbatch) -> Json {
    return list_of(microbatch.parts, [](const Part& part) -> Json { return part.samples; });
  });
}

const char* backward_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::backward: return "B";
    case ActionKind::backward_input: return "I";
    case ActionKind::backward_weight: return "W";
    default: return "";
  }
}

}  // namespace

std::vector<Action> backward_order(const IterationPlan& plan) {
  std::vector<Action> order;
  for (const auto& device : plan.actions)
    for (const Action& action : device)
      if (*backward_name(action.kind) != '\0') order.push_back(action);
  return order;
}

std::string plan_json(const ParallelPlan& plan, EpochNumber epoch_number) {
  const auto& model = plan.model;
  Json json = {
      {"epoch_number", epoch_number},
      {"modules", model_json(model)},
      {"tied", list_of(model.tied,
                       [&](const TiedParameter& tied) -> Json {
                         return {
                             {"name", tied.name},
                             {"layers", list_of(tied.layers,
                                                [&](LayerId id) { return layer_json(model, id); })},
                             {"parameter_elements", tied.parameter_elements},
                             {"splits", splits_json(tied.splits)}};
                       })},
      {"devices", list_of(plan.devices,
                          [](const DeviceSlot& slot) -> Json {
                            return {{"node", slot.node.value}, {"local_index", slot.local_index}};
                          })},
      {"module_groups", list_of(plan.module_groups,
                                [&](const ModuleGroup& group) -> Json {
                                  return {
                                      {"name", group.name},
                                      {"modules", list_of(group.modules, [&](ModuleId id) -> Json {
                                         return model.at(id).name;
                                       })}};
                                })},
      {"replicas", list_of(plan.replicas,
                           [](const Replica& replica) -> Json {
                             return {{"group", replica.group.value},
                                     {"pipeline", replica.pipeline.value},
                                     {"stages", numbers(replica.stages)}};
                           })},
      {"stages", stages_json(plan)},
      {"pipelines", list_of(plan.pipelines,
                            [](const Pipeline& pipeline) -> Json {
                              return {{"replicas", numbers(pipeline.replicas)}};
                            })},
      {"groups", groups_json(plan)},
      {"standbys", standbys_json(plan)},
      {"leads", numbers(plan.leads)}};
  if (model.sums != SumOrder::chain) json["sums"] = std::string(to_string(model.sums));
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string iteration_line(const IterationPlan& plan) {
  Json json = {
      {"step", plan.step},
      {"epoch_number", plan.epoch_number},
      {"ids", list_of(plan.samples, [](const SampleShape& sample) -> Json { return sample.id; })},
      {"replicas", list_of(plan.microbatches, microbatches_json)},
      {"backward", list_of(backward_order(plan), [](const Action& action) -> Json {
         return Json::array({backward_name(action.kind), action.stage.value,
                             action.microbatch.value, action.part.value});
       })}};
  if (!plan.pieces.empty())
    json["pieces"] = list_of(plan.pieces, [](const SamplePiece& piece) -> Json {
      return Json::array({piece.sample, piece.module.value, piece.first, piece.count});
    });
  if (!plan.boundaries.empty())
    json["boundaries"] = list_of(plan.boundaries, [](const BoundaryRoute& boundary) -> Json {
      return Json::array({boundary.module.value, boundary.group.value,
                          std::string(to_string(boundary.route)), boundary.pinned});
    });
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace troupe::observe
