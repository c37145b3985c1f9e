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

HandStage bind_stage(const Value& value, const std::string& path,
                     const std::vector<std::string>& modules, Findings& findings) {
  HandStage stage;
  SectionReader reader{&value, path, findings};
  reader.integer("node", stage.node, {0, 100'000});
  reader.integer("device", stage.device, {0, 1023});
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

std::vector<std::vector<HandStage>> bind_pipelines(const Value::Array& list,
                                                   const std::vector<std::string>& modules,
                                                   Findings& findings) {
  std::vector<std::vector<HandStage>> pipelines;
  for (const auto& item : list) {
    const auto path = "parallel.pipelines[" + std::to_string(pipelines.size()) + "]";
    auto& stages = pipelines.emplace_back();
    SectionReader reader{&item, path, findings};
    if (const auto* written = reader.list("stages"))
      for (const auto& stage : *written)
        stages.push_back(bind_stage(stage, path + ".stages[" + std::to_string(stages.size()) + "]",
                                    modules, findings));
    if (reader.is_given() && item.find("stages") == nullptr)
      findings.add(Errc::invalid_argument, item.where(), path + ": stages are missing",
                   "write stages = [{node = 0, llm = \"all\"}]");
    reader.finish();
  }
  return pipelines;
}

void check_mode(const Parallel& parallel, bool is_manual, Findings& findings) {
  if (is_manual && parallel.layout.pipelines.empty())
    findings.add_at("parallel.mode", "parallel.mode: \"manual\" needs a layout",
                    "add [[parallel.pipelines]] tables, or write mode = \"auto\"");
  if (!is_manual && !parallel.layout.pipelines.empty())
    findings.add_at("parallel.mode", "parallel.mode: \"auto\", but pipelines are given",
                    "remove one of the two; on the command line: parallel.pipelines=[]");
}

}  // namespace

Parallel bind_parallel(const Value* value, const std::vector<std::string>& modules,
                       Findings& findings) {
  Parallel parallel;
  SectionReader reader{value, "parallel", findings};
  if (const auto* pipelines = reader.list("pipelines"))
    parallel.layout.pipelines = bind_pipelines(*pipelines, modules, findings);
  parallel.mode = parallel.layout.pipelines.empty() ? LayoutMode::automatic : LayoutMode::manual;
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

}  // namespace troupe::job
