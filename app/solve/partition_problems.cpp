// Cutting layers into stages: one list of layers, or a whole model with frozen modules.

#include "app/solve/planning_problems.hpp"
#include "scheduler/layout/module_partition.hpp"
#include "scheduler/layout/partition.hpp"

namespace troupe::app {

namespace {

Result<Json> solve_partition(const Json& input) {
  Reader in(input, "input");
  in.only({"costs", "stages"});
  const auto costs = in.numbers("costs", 0, kLongestMs);
  const auto stages = in.integer("stages", 1, kMostThings);
  if (!in.ok()) return in.error();
  return timed_json([&] { return scheduler::partition(costs, stages); },
                    [](const scheduler::Partition& made) {
                      return Json{{"cuts", made.cuts}, {"max", made.max}};
                    });
}

scheduler::PlannedModule read_module(Reader& in) {
  scheduler::PlannedModule module;
  in.only({"name", "freeze", "next", "attach", "layers"});
  module.name = in.text("name");
  module.freeze = in.boolean_or("freeze", false);
  if (in.has("attach")) module.attach = in.text("attach");
  if (in.has("next"))
    for (const auto& next : in.array("next")) {
      if (next.is_string()) {
        module.next.push_back(next.get<std::string>());
      } else {
        in.fail("next", "expected a list of module names");
      }
    }
  const std::size_t count = in.array("layers").size();
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    Reader layer = in.element("layers", i);
    layer.only({"forward_ms", "input_grad_ms", "weight_grad_ms"});
    module.layers.push_back({layer.number("forward_ms", 0, kLongestMs),
                             layer.number("input_grad_ms", 0, kLongestMs),
                             layer.number("weight_grad_ms", 0, kLongestMs)});
    in.absorb(layer);
  }
  return module;
}

Json write_stage(const scheduler::PlannedStage& stage,
                 const std::vector<scheduler::PlannedModule>& modules) {
  Json runs = Json::array();
  for (const auto& run : stage.runs)
    runs.push_back({{"module", modules[static_cast<std::size_t>(run.module)].name},
                    {"layers", {run.layers.begin, run.layers.end}}});
  return {{"runs", std::move(runs)},
          {"forward_ms", stage.forward_ms},
          {"backward_ms", stage.backward_ms}};
}

Result<Json> solve_module_partition(const Json& input) {
  Reader in(input, "input");
  in.only({"modules", "devices", "microbatches"});
  std::vector<scheduler::PlannedModule> modules;
  const std::size_t count = in.array("modules").size();
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    Reader module = in.element("modules", i);
    modules.push_back(read_module(module));
    in.absorb(module);
  }
  const auto devices = in.integer("devices", 1, kMostThings);
  const auto microbatches = in.integer_or("microbatches", 1, 1, kMostThings);
  if (!in.ok()) return in.error();
  return timed_json([&] { return scheduler::partition_modules(modules, devices, microbatches); },
                    [&](const scheduler::ModulePartition& made) {
                      Json stages = Json::array();
                      for (const auto& stage : made.stages)
                        stages.push_back(write_stage(stage, modules));
                      return Json{{"stages", std::move(stages)}, {"step_ms", made.step_ms}};
                    });
}

const char* const kModulePartitionSchema = R"({
  "modules": [{"name": text, "freeze"?: bool (default false), "next"?: [names that take its output],
               "attach"?: name of a neighbour whose stage it may share,
               "layers": [{"forward_ms", "input_grad_ms", "weight_grad_ms": ms >= 0, as if
                           everything were trainable}...]}...],
  "devices": D, integer >= 1: at most so many stages, "microbatches"?: M, integer >= 1 (default 1)
})";

}  // namespace

std::vector<Problem> partition_problems() {
  return {{"partition", "contiguous stages with the least maximum",
           "{\"costs\": [number >= 0 per layer], \"stages\": integer >= 1}", solve_partition},
          {"module-partition", "stages over a model of several modules, frozen-aware (Cornstarch)",
           kModulePartitionSchema, solve_module_partition}};
}

}  // namespace troupe::app
