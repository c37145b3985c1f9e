#include <algorithm>

#include "runtime/job/check_job.hpp"

namespace troupe::job {

namespace {

using std::to_string;

/// Layers of one module in one pipeline, and where the job file says so.
struct Placed {
  LayerRange layers;
  std::string path;
};

void check_devices(const HandStage& stage, const std::string& path, const Cluster& cluster,
                   Findings& findings) {
  if (stage.node >= cluster.nodes)
    findings.add_at(path + ".node",
                    path + ".node: " + to_string(stage.node) + ", but the job has " +
                        to_string(cluster.nodes) + (cluster.nodes == 1 ? " node" : " nodes"),
                    "nodes count from 0; cluster.nodes or cluster.local_nodes says how many");
  const std::string key = path + (stage.devices.empty() ? ".device" : ".devices");
  for (const auto device : stage.all_devices())
    if (device >= cluster.devices_per_node)
      findings.add_at(key,
                      key + ": " + to_string(device) + ", but a node has " +
                          to_string(cluster.devices_per_node) +
                          (cluster.devices_per_node == 1 ? " device" : " devices"),
                      "devices count from 0; cluster.devices_per_node says how many");
}

/// Every layer of `module` exactly once; a projector may be left out.
void check_cover(const ModuleConfig& module, std::vector<Placed> placed, const std::string& path,
                 Findings& findings) {
  const auto layers = layer_count(module);
  if (placed.empty()) {
    if (module.kind != ModuleKind::projector)
      findings.add_at(
          path, path + ": no stage holds " + module.name,
          "add " + module.name + " = \"all\" to a stage (it has " + to_string(layers) + " layers)");
    return;
  }
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return a.layers.begin < b.layers.begin;
  });
  std::int32_t covered = 0;
  for (const auto& run : placed) {
    const auto begin = run.layers.begin;
    if (begin != covered) {
      const bool is_gap = begin > covered;
      findings.add_at(run.path,
                      path + ": layer " + to_string(is_gap ? covered : begin) + " of " +
                          module.name + (is_gap ? " is on no stage" : " is on two stages"),
                      "the ranges of " + module.name + " must follow one another from 0 to " +
                          to_string(layers));
      return;
    }
    covered = run.layers.end;
  }
  if (covered == layers) return;
  findings.add_at(placed.back().path,
                  path + ": " + module.name + " has " + to_string(layers) +
                      " layers (its first and last special ones included), but the stages end at " +
                      to_string(covered),
                  "the last range of " + module.name + " must end at " + to_string(layers));
}

/// The stages of a table, which hold all layers of these modules.
void check_stages(const Job& job, const std::vector<HandStage>& stages,
                  const std::vector<std::string>& modules, const std::string& path,
                  Findings& findings) {
  const auto problems_before = findings.problems.size();
  for (std::size_t i = 0; i < stages.size(); ++i)
    check_devices(stages[i], path + ".stages[" + to_string(i) + "]", job.cluster, findings);
  if (findings.problems.size() > problems_before) return;
  for (const auto& module : job.modules) {
    if (std::find(modules.begin(), modules.end(), module.name) == modules.end()) continue;
    std::vector<Placed> placed;
    for (std::size_t i = 0; i < stages.size(); ++i)
      for (const auto& run : stages[i].runs)
        if (run.module == module.name)
          placed.push_back({run.layers.value_or(LayerRange{0, layer_count(module)}),
                            path + ".stages[" + to_string(i) + "]." + run.module});
    check_cover(module, std::move(placed), path, findings);
  }
}

/// A machine without a stage is most likely a slip; it would wait for ever. Not where layouts
/// change: each may leave machines to others. Where nodes may be lost it may be a standby holder,
/// and only the planner knows.
void check_idle(const Job& job, Findings& findings) {
  if (!job.debug.layouts.empty() || job.cluster.fault_tolerance > 0 || job.cluster.spares > 0)
    return;
  const auto per_node = job.cluster.devices_per_node;
  for (std::int32_t i = 0; i < job.cluster.nodes * per_node; ++i) {
    const auto runs_here = [&](const HandStage& stage) {
      const auto devices = stage.all_devices();
      return stage.node == i / per_node &&
             std::find(devices.begin(), devices.end(), i % per_node) != devices.end();
    };
    const auto stages = job.parallel.layout.all_stages();
    if (std::any_of(stages.begin(), stages.end(),
                    [&](const HandStage* stage) { return runs_here(*stage); }))
      continue;
    const std::string key = job.parallel.layout.pipelines.empty() ? "replicas" : "pipelines";
    findings.add_at("parallel." + key,
                    "parallel." + key + ": no stage on device " + to_string(i % per_node) +
                        " of node " + to_string(i / per_node),
                    "give it a stage, or lower cluster.local_nodes, nodes or devices_per_node");
    return;
  }
}

/// In the layout that has most of them: each must get samples.
std::int64_t most_copies(const Job& job, const std::string& module) {
  std::int64_t most = std::ssize(job.parallel.layout.copies_of(module));
  for (const auto& later : job.debug.layouts)
    most = std::max(most, std::ssize(later.layout.copies_of(module)));
  return most;
}

}  // namespace

void check_hand_layout(const Job& job, const HandLayout& layout, const std::string& section,
                       Findings& findings) {
  std::vector<std::string> all;
  for (const auto& module : job.modules) all.push_back(module.name);
  for (std::size_t i = 0; i < layout.pipelines.size(); ++i)
    check_stages(job, layout.pipelines[i], all, section + ".pipelines[" + to_string(i) + "]",
                 findings);
  for (std::size_t i = 0; i < layout.replicas.size(); ++i)
    check_stages(job, layout.replicas[i].stages, layout.replicas[i].modules,
                 section + ".replicas[" + to_string(i) + "]", findings);
}

void check_layout(const Job& job, Findings& findings) {
  const auto problems_before = findings.problems.size();
  for (std::size_t i = 0; i < job.debug.layouts.size(); ++i)
    check_hand_layout(job, job.debug.layouts[i].layout, "debug.layouts[" + to_string(i) + "]",
                      findings);
  if (job.parallel.layout.empty()) return;
  check_hand_layout(job, job.parallel.layout, "parallel", findings);
  if (findings.problems.size() == problems_before) check_idle(job, findings);
}

std::int64_t llm_copies(const Job& job) {
  for (const auto& module : job.modules)
    if (module.kind == ModuleKind::llm) return most_copies(job, module.name);
  return 0;
}

std::int64_t encoder_copies(const Job& job) {
  std::int64_t most = 0;
  for (const auto& module : job.modules)
    if (module.kind == ModuleKind::encoder || module.kind == ModuleKind::teacher)
      most = std::max(most, most_copies(job, module.name));
  return most;
}

std::string llm_copies_noun(const Job& job) {
  return job.parallel.layout.pipelines.empty() ? "llm replicas" : "pipelines";
}

}  // namespace troupe::job
