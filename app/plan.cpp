// `troupe plan`: a layout for a job and a cluster, what it costs, and why it was chosen.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>

#include "app/plan_step.hpp"
#include "app/planning.hpp"
#include "app/planning_text.hpp"
#include "app/progress.hpp"
#include "app/terminal.hpp"

namespace troupe::app {

namespace {

struct Options {
  PlanningArguments planning;
  std::string save;
  std::string timeline;
};

std::string stages_toml(const std::vector<HandStage>& stages) {
  std::string text = "stages = [\n";
  for (const auto& stage : stages) {
    text += "  { node = " + std::to_string(stage.node) +
            (stage.device > 0 ? ", device = " + std::to_string(stage.device) : "");
    text += job::grid_toml(stage);
    for (const auto& run : stage.runs)
      text += ", " + run.module + " = [" + std::to_string(run.layers->begin) + ", " +
              std::to_string(run.layers->end) + "]";
    text += " },\n";
  }
  return text + "]\n";
}

/// The layout as `[[parallel.pipelines]]`, or `[[parallel.replicas]]`.
std::string layout_toml(const HandLayout& layout) {
  std::string text = "[parallel]\nmode = \"manual\"\n";
  for (const auto& pipeline : layout.pipelines)
    text += "\n[[parallel.pipelines]]\n" + stages_toml(pipeline);
  for (const auto& replica : layout.replicas) {
    std::string modules;
    for (const auto& module : replica.modules)
      modules += (modules.empty() ? "\"" : ", \"") + module + "\"";
    text += "\n[[parallel.replicas]]\nmodules = [" + modules + "]\n" + stages_toml(replica.stages);
  }
  return text;
}

Status save_layout(const HandLayout& layout, const std::string& path) {
  HandLayout whole = layout;
  std::ofstream file(path, std::ios::binary);
  file << layout_toml(whole);
  file.flush();
  if (file.good()) return Done{};
  return Error{Errc::io_failed, "cannot write the layout", path,
               "name a file in a folder that is there"};
}

int plan(const Options& options) {
  if (auto checked = check_timeline_file(options.timeline); !checked.ok())
    return report(checked.error());
  const auto opened = open_planning(options.planning);
  if (!opened.ok()) return report(opened.error());
  const Planning& planning = *opened.value();
  auto planned = plan_step(planning);
  if (!planned.ok()) return report(planned.error());
  const scheduler::AutoLayout& layout = planned.value().layout;
  if (!options.save.empty()) {
    if (planning.by_hand)
      return report(usage_error("--save: this layout is in the job file already",
                                "add parallel.mode=auto parallel.pipelines=[] to have one chosen"));
    if (auto saved = save_layout(layout.layout, options.save); !saved.ok())
      return report(saved.error());
  }
  if (!options.timeline.empty())
    if (auto written = write_timeline(planning, layout, planned.value().batch, options.timeline);
        !written.ok())
      return report(written.error());
  auto progress = std::make_optional<Progress>("making pipeline templates");
  auto notes = planning_notes(planning, layout);
  progress.reset();
  if (!notes.ok()) return report(notes.error());
  notes.value().suggestions = suggestions(planning, planned.value());
  if (options.planning.json) {
    auto json = layout_json(planning, planned.value(), notes.value());
    json["corrections"] = corrections_json(planning.corrected);
    std::cout << json.dump(2) << '\n';
  } else {
    print_layout(planning, planned.value(), notes.value());
  }
  return kDone;
}

}  // namespace

void add_plan(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command = commands.add("plan", "Find a layout for a job and a cluster, and say why",
                               [options] { return plan(*options); });
  options->planning.add_to(*command);
  command->add_option("--save", options->save, "Write the layout as a job file says it")
      ->type_name("FILE");
  command
      ->add_option("--timeline", options->timeline,
                   "Write a simulated step as a page (.html) or for Perfetto (.json)")
      ->type_name("FILE");
}

}  // namespace troupe::app
