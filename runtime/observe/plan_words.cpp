#include "runtime/observe/plan_words.hpp"

#include <algorithm>
#include <cstdint>

#include "runtime/vocabulary/joined.hpp"

namespace troupe::observe {

namespace {

std::string counted(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string replicas_text(const ParallelPlan& plan) {
  std::vector<std::string> words;
  for (std::size_t g = 0; g < plan.module_groups.size(); ++g) {
    const auto count = static_cast<std::size_t>(
        std::count_if(plan.replicas.begin(), plan.replicas.end(),
                      [g](const Replica& replica) { return replica.group == ModuleGroupId{g}; }));
    words.push_back((g == 0 ? counted(count, "replica") : std::to_string(count)) + " of " +
                    plan.module_groups[g].name);
  }
  return joined_by_and(words) + " in " + counted(plan.stages.size(), "stage");
}

std::string run_words(const ModuleSpec& module, LayerRange layers) {
  if (module.layers.size() == 1) return module.name;
  const std::string text = module.name + " " + std::to_string(layers.begin);
  return layers.size() > 1 ? text + "-" + std::to_string(layers.end - 1) : text;
}

}  // namespace

std::string layout_words(const ParallelPlan& plan) {
  if (plan.replicas.size() != plan.pipelines.size() * plan.module_groups.size())
    return replicas_text(plan);
  std::vector<std::string> stages;
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p)
    stages.push_back(std::to_string(plan.stages_of(PipelineId{p}).size()));
  const std::string text = joined_by_and(stages);
  return counted(plan.pipelines.size(), "pipeline") + " of " + text +
         (text == "1" ? " stage" : " stages");
}

std::string sum_words(const ParallelPlan& plan) {
  const auto count = static_cast<std::size_t>(
      std::count_if(plan.groups.begin(), plan.groups.end(),
                    [](const ParameterGroup& group) { return group.order == SumOrder::nccl; }));
  if (count == 0) return "";
  return "NCCL adds up the gradients of " + counted(count, "layer") +
         " in its own order: the last bits of a run depend on machines and layouts "
         "(cluster.sums = \"nccl-chain\" gives those of messages)";
}

std::string stage_words(const ParallelPlan& plan, const Stage& stage) {
  std::string text;
  for (const LayerRun& run : stage.runs)
    text += (text.empty() ? "" : ", ") + run_words(plan.model.at(run.module), run.layers);
  return text;
}

std::string layer_words(const ModelGraph& model, const std::set<LayerId>& layers) {
  std::string text;
  for (auto layer = layers.begin(); layer != layers.end();) {
    const ModuleId module = layer->module;
    LayerRange run{layer->layer, layer->layer};
    for (; layer != layers.end() && *layer == LayerId{module, run.end}; ++layer) ++run.end;
    text += (text.empty() ? "" : ", ") + run_words(model.at(module), run);
  }
  return text;
}

}  // namespace troupe::observe
