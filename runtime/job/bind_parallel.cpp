#include <algorithm>

#include "runtime/job/bind_job.hpp"
#include "runtime/job/key_help.hpp"
#include "runtime/job/section_reader.hpp"
#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::job {

namespace {

/// The layers of one run: `[begin, end]` or "all".
std::optional<HandRun> bind_run(const Member& member, const std::string& path, Findings& findings) {
  HandRun run{member.key, std::nullopt};
  const auto* word = std::get_if<std::string>(&member.value.data);
  if (word != nullptr && *word == "all") return run;
  const auto* ends = member.value.array();
  const auto end = [&](std::size_t i) {
    return ends != nullptr && ends->size() == 2 ? std::get_if<std::int64_t>(&(*ends)[i].data)
                                                : nullptr;
  };
  const auto* first = end(0);
  const auto* last = end(1);
  constexpr std::int64_t kLayersMax = 1'000'000;
  if (first != nullptr && last != nullptr && *first >= 0 && *first < *last && *last <= kLayersMax) {
    run.layers = LayerRange{static_cast<std::int32_t>(*first), static_cast<std::int32_t>(*last)};
    return run;
  }
  findings.add(Errc::invalid_argument, member.value.where(),
               path + "." + member.key + ": expected a range of layers, found " +
                   (first != nullptr && last != nullptr
                        ? "[" + std::to_string(*first) + ", " + std::to_string(*last) + "]"
                        : member.value.shown()),
               "write [begin, end] with 0 <= begin < end (end is not included), or \"all\"");
  return std::nullopt;
}

constexpr std::int64_t kDeviceMax = 1023;

/// `devices`, `tp` and `cp` of a stage; that they fit together is the planner's check.
void bind_grid(const Value& value, const std::string& path, HandStage& stage, SectionReader& reader,
               Findings& findings) {
  reader.integer("tp", stage.tp, {1, kDeviceMax + 1});
  reader.integer("cp", stage.cp, {1, kDeviceMax + 1});
  const auto* written = reader.list("devices");
  if (written == nullptr) return;
  for (const Value& item : *written) {
    const auto* index = std::get_if<std::int64_t>(&item.data);
    if (index != nullptr && *index >= 0 && *index <= kDeviceMax)
      stage.devices.push_back(static_cast<std::int32_t>(*index));
    else
      findings.add(Errc::invalid_argument, item.where(),
                   path + ".devices: expected devices of the node, found " + item.shown(),
                   "list their numbers, as devices = [0, 1]");
  }
  if (value.find("device") != nullptr)
    findings.add(Errc::invalid_argument, value.where(), path + ": device and devices are given",
                 "keep one of them: device for one, devices for a grid of tp x cp");
  if (written->empty())
    findings.add(Errc::invalid_argument, value.where(), path + ".devices: no device",
                 "list as many as tp x cp, or write device");
}

HandStage bind_stage(const Value& value, const std::string& path,
                     const std::vector<std::string>& modules, Findings& findings) {
  HandStage stage;
  SectionReader reader{&value, path, findings};
  reader.integer("node", stage.node, {0, 100'000});
  reader.integer("device", stage.device, {0, kDeviceMax});
  bind_grid(value, path, stage, reader, findings);
  if (reader.is_given() && value.find("node") == nullptr)
    findings.add(Errc::invalid_argument, value.where(), path + ": node is missing",
                 "say which node runs this stage: node = 0");
  const auto runs = reader.rest();
  for (const auto* member : runs) {
    findings.origins[path + "." + member->key] = Origin{member->value.where()};
    if (std::find(modules.begin(), modules.end(), member->key) == modules.end()) {
      const auto near = nearest_word(member->key, modules);
      findings.add(Errc::invalid_argument, member->value.where(),
                   path + "." + member->key + ": no module is called '" + member->key + "'",
                   near.empty() ? "name a module of [modules]" : "did you mean " + near + "?");
    } else if (auto run = bind_run(*member, path, findings)) {
      stage.runs.push_back(std::move(*run));
    }
  }
  if (reader.is_given() && runs.empty())
    findings.add(Errc::invalid_argument, value.where(), path + ": no layers",
                 "name the layers it runs, as llm = [0, 6], or remove the stage");
  return stage;
}

/// `stages` of the table at `path`.
std::vector<HandStage> bind_stages(const Value& item, const std::string& path,
                                   const std::vector<std::string>& modules, SectionReader& reader,
                                   Findings& findings) {
  std::vector<HandStage> stages;
  if (const auto* written = reader.list("stages"))
    for (const auto& stage : *written)
      stages.push_back(bind_stage(stage, path + ".stages[" + std::to_string(stages.size()) + "]",
                                  modules, findings));
  if (reader.is_given() && item.find("stages") == nullptr)
    findings.add(Errc::invalid_argument, item.where(), path + ": stages are missing",
                 "write stages = [{node = 0, llm = \"all\"}]");
  return stages;
}

std::vector<std::vector<HandStage>> bind_pipelines(const Value::Array& list,
                                                   const std::string& section,
                                                   const std::vector<std::string>& modules,
                                                   Findings& findings) {
  std::vector<std::vector<HandStage>> pipelines;
  for (const auto& item : list) {
    const auto path = section + ".pipelines[" + std::to_string(pipelines.size()) + "]";
    SectionReader reader{&item, path, findings};
    pipelines.push_back(bind_stages(item, path, modules, reader, findings));
    reader.finish();
  }
  return pipelines;
}

/// `modules` of the table at `path`: names that exist.
std::vector<std::string> bind_group(const Value& item, const std::string& path,
                                    const std::vector<std::string>& modules, SectionReader& reader,
                                    Findings& findings) {
  std::vector<std::string> group;
  const auto* written = reader.list("modules");
  for (std::size_t i = 0; written != nullptr && i < written->size(); ++i) {
    const auto* name = std::get_if<std::string>(&(*written)[i].data);
    if (name != nullptr && std::find(modules.begin(), modules.end(), *name) != modules.end()) {
      group.push_back(*name);
      continue;
    }
    const auto near = name == nullptr ? std::string() : nearest_word(*name, modules);
    findings.add(Errc::invalid_argument, (*written)[i].where(),
                 path + ".modules: no module is called " + (*written)[i].shown(),
                 near.empty() ? "name modules of [modules]" : "did you mean " + near + "?");
  }
  if (reader.is_given() && (item.find("modules") == nullptr || (written && written->empty())))
    findings.add(Errc::invalid_argument, item.where(), path + ": modules are missing",
                 "say what it is a copy of: modules = [\"llm\"], or an encoder");
  return group;
}

std::vector<HandReplica> bind_replicas(const Value::Array& list, const std::string& section,
                                       const std::vector<std::string>& modules,
                                       Findings& findings) {
  std::vector<HandReplica> replicas;
  for (const auto& item : list) {
    const auto path = section + ".replicas[" + std::to_string(replicas.size()) + "]";
    SectionReader reader{&item, path, findings};
    auto group = bind_group(item, path, modules, reader, findings);
    auto stages = bind_stages(item, path, modules, reader, findings);
    replicas.push_back({std::move(group), std::move(stages)});
    reader.finish();
  }
  return replicas;
}

/// Both forms; at most one of them may be there.
HandLayout bind_hand_layout(SectionReader& reader, const std::string& section,
                            const std::vector<std::string>& modules, Findings& findings) {
  HandLayout layout;
  if (const auto* pipelines = reader.list("pipelines"))
    layout.pipelines = bind_pipelines(*pipelines, section, modules, findings);
  if (const auto* replicas = reader.list("replicas"))
    layout.replicas = bind_replicas(*replicas, section, modules, findings);
  if (!layout.pipelines.empty() && !layout.replicas.empty())
    findings.add_at(section + ".replicas",
                    section + ".replicas: " + section +
                        ".pipelines is there too, which is another way to write a layout",
                    "write the whole layout in one of the two forms; on the command line: " +
                        section + ".pipelines=[]");
  return layout;
}

void check_mode(const Parallel& parallel, bool is_manual, Findings& findings) {
  const HandLayout& layout = parallel.layout;
  if (is_manual && layout.empty())
    findings.add_at("parallel.mode", "parallel.mode: \"manual\" needs a layout",
                    "add [[parallel.pipelines]] or [[parallel.replicas]] tables, or write mode = "
                    "\"auto\"");
  const std::string key = layout.pipelines.empty() ? "replicas" : "pipelines";
  if (!is_manual && !layout.empty())
    findings.add_at("parallel.mode", "parallel.mode: \"auto\", but " + key + " are given",
                    "remove one of the two; on the command line: parallel." + key + "=[]");
}

}  // namespace

Parallel bind_parallel(const Value* value, const std::vector<std::string>& modules,
                       Findings& findings) {
  Parallel parallel;
  SectionReader reader{value, "parallel", findings};
  parallel.layout = bind_hand_layout(reader, "parallel", modules, findings);
  parallel.mode = parallel.layout.empty() ? LayoutMode::automatic : LayoutMode::manual;
  reader.choice("mode", parallel.mode, kLayoutModes);
  check_mode(parallel, parallel.mode == LayoutMode::manual, findings);
  for (const auto& name : modules) {
    const Value* table = reader.take(name.c_str());
    if (table == nullptr) continue;
    SectionReader layout{table, "parallel." + name, findings};
    describe_module_layout(layout, parallel.modules[name]);
    layout.finish();
  }
  reader.finish();
  return parallel;
}

HandLayout bind_layout_file(const Value& root, const std::vector<std::string>& modules,
                            Findings& findings) {
  SectionReader file{&root, "", findings};
  SectionReader reader{file.take("parallel"), "parallel", findings};
  for (const auto* member : file.rest())
    findings.add(Errc::invalid_argument, member->value.where(),
                 member->key + ": a layout file holds [parallel] alone",
                 "remove it: the rest of a running job stays as it is");
  auto layout = bind_hand_layout(reader, "parallel", modules, findings);
  LayoutMode mode = LayoutMode::manual;
  reader.choice("mode", mode, kLayoutModes);
  if (mode != LayoutMode::manual)
    findings.add_at("parallel.mode", "parallel.mode: a running job takes up layouts by hand alone",
                    "remove it, or write mode = \"manual\"");
  for (const auto& name : modules)
    if (const Value* pins = reader.take(name.c_str()))
      findings.add(Errc::invalid_argument, pins->where(),
                   "parallel." + name + ": pins the planner's choice; this layout is by hand",
                   "remove it, and say by stages where " + name + " runs");
  reader.finish();
  if (layout.empty() && findings.problems.empty())
    findings.add_at("parallel", "no layout",
                    "add [[parallel.pipelines]] or [[parallel.replicas]] tables");
  return layout;
}

std::vector<LaterLayout> bind_later_layouts(const Value::Array& list,
                                            const std::vector<std::string>& modules,
                                            Findings& findings) {
  std::vector<LaterLayout> layouts;
  for (const auto& item : list) {
    const auto path = "debug.layouts[" + std::to_string(layouts.size()) + "]";
    SectionReader reader{&item, path, findings};
    LaterLayout later;
    describe_later_layout(reader, later);
    if (reader.is_given() && item.find("from_step") == nullptr)
      findings.add(Errc::invalid_argument, item.where(), path + ": from_step is missing",
                   "say from which step on the job runs on it: from_step = 100");
    later.layout = bind_hand_layout(reader, path, modules, findings);
    reader.finish();
    if (later.layout.empty())
      findings.add(Errc::invalid_argument, item.where(), path + ": no layout",
                   "give it pipelines or replicas, as [parallel] has");
    if (!layouts.empty() && later.step <= layouts.back().step)
      findings.add_at(path + ".from_step", path + ".from_step: not after the one before",
                      "write the layouts in the order of their steps");
    layouts.push_back(std::move(later));
  }
  return layouts;
}

}  // namespace troupe::job
