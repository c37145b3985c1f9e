// `troupe report`: one HTML file about a run.

#include "runtime/observe/report.hpp"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/commands.hpp"
#include "app/read_limits.hpp"
#include "app/run_argument.hpp"
#include "app/terminal.hpp"
#include "engine/run/run_lock.hpp"
#include "runtime/observe/line_file.hpp"
#include "runtime/vocabulary/printable.hpp"

namespace troupe::app {

namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string run;
  std::optional<std::int64_t> step;
  std::string out;
  ReadTimeout timeout;
  bool json = false;
};

Json layouts_json(const observe::ReportedLayouts& layouts) {
  Json list = Json::array();
  for (const auto& layout : layouts.newest) {
    Json holders = Json::array();
    for (const auto& holder : layout.holders)
      holders.push_back(
          {{"node", holder.node.value}, {"stages", holder.stages}, {"standbys", holder.standbys}});
    list.push_back({{"generation", layout.generation},
                    {"first_step", layout.first_step},
                    {"last_step", layout.last_step},
                    {"layout", layout.words},
                    {"why", layout.why},
                    {"nodes", std::move(holders)}});
  }
  return list;
}

Json numbers(const observe::RunRecord& run, const std::vector<observe::Timeline>& timelines) {
  Json json{{"run", run.folder.string()}};
  for (const auto& figure : observe::report_figures(run)) json[figure.key] = figure.value;
  json["timelines"] = Json::array();
  for (const auto& timeline : timelines)
    json["timelines"].push_back({{"title", timeline.title},
                                 {"span_ms", timeline.span_ms()},
                                 {"devices", timeline.lanes.size()},
                                 {"actions", timeline.intervals.size()}});
  json["layouts"] = layouts_json(run.layouts);
  json["notes"] = run.notes;
  json["missing"] = observe::missing_figures(run);
  return json;
}

int write_report(const Options& options) {
  if (auto found = check_run_folder(options.run); !found.ok()) return app::report(found.error());
  auto run = observe::read_run(options.run);
  if (!run.ok()) return app::report(run.error());
  run.value().running = engine::is_locked(options.run);
  const auto timelines = timelines_of_run(options.run, options.step);
  std::vector<observe::Timeline> shown;
  std::string no_timeline;
  if (timelines.ok()) {
    shown = timelines.value();
  } else if (options.step || timelines.error().code != Errc::not_found) {
    return app::report(timelines.error());
  } else {
    no_timeline = "No timeline: " + timelines.error().message + ".";
  }
  const std::filesystem::path out = options.out.empty()
                                        ? std::filesystem::path(options.run) / "report.html"
                                        : std::filesystem::path(options.out);
  // Numbers alone need no file; --out asks for one.
  if (!options.json || !options.out.empty()) {
    auto written =
        observe::write_whole_file(out, observe::report_page(run.value(), shown, no_timeline));
    if (!written.ok()) return app::report(written.error());
  }
  if (options.json) {
    std::cout << numbers(run.value(), shown).dump(2, ' ', false, Json::error_handler_t::replace)
              << '\n';
    return kDone;
  }
  for (const auto& note : run.value().notes) std::cout << "note: " << printable(note) << '\n';
  std::cout << "wrote " << out.string() << " (open it in a browser)\n";
  return kDone;
}

}  // namespace

void add_report(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command = commands.add(
      "report", "Make an HTML report of a run, to read without network",
      [options] { return options->timeout.limit([&] { return write_report(*options); }); });
  command->add_option("RUN", options->run, "A run folder")->required()->type_name("DIR");
  command
      ->add_option("--step", options->step, "The step whose timeline is shown (default: the last)")
      ->type_name("N");
  command->add_option("--out", options->out, "The file (default: RUN/report.html)")
      ->type_name("FILE");
  options->timeout.add_to(*command);
  command->add_flag("--json", options->json, "The figures as JSON; the page only with --out");
}

}  // namespace troupe::app
