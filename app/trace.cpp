// `troupe trace`: where a run's time went, as numbers, as a page, or for Perfetto.

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
#include "runtime/files/read_stream.hpp"
#include "runtime/observe/line_file.hpp"
#include "runtime/observe/recorded_trace.hpp"
#include "runtime/observe/timeline_page.hpp"
#include "runtime/observe/trace_summary.hpp"
#include "runtime/vocabulary/printable.hpp"

namespace troupe::app {

namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

struct Options {
  std::string run;
  std::optional<std::int64_t> step;
  std::string out;
  ReadTimeout timeout;
  bool json = false;
};

Result<std::string> whole_trace(const fs::path& path) {
  files::ReadStream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.good() && !file.eof())
    return Error{Errc::io_failed, "cannot be read", path.string(), ""};
  return text;
}

Status write_out(const Options& options, const fs::path& trace) {
  const fs::path out = options.out;
  const auto suffix = out.extension().string();
  if (suffix == ".json") {
    const auto text =
        options.step ? observe::trace_of_step(trace, *options.step) : whole_trace(trace);
    if (!text.ok()) return text.error();
    return observe::write_whole_file(out, text.value());
  }
  if (suffix != ".html" && suffix != ".htm")
    return usage_error("a trace is written as .html (a page) or .json (for Perfetto), not as '" +
                           options.out + "'",
                       "name the file with one of those endings");
  const auto timelines = timelines_of_run(options.run, options.step);
  if (!timelines.ok()) return timelines.error();
  const auto name = fs::path(options.run).lexically_normal();
  const auto title = "Run " + (name.has_filename() ? name : name.parent_path()).filename().string();
  return observe::write_whole_file(out, observe::timeline_page(title, timelines.value()));
}

Json summary_json(const observe::TraceSummary& summary) {
  Json json{{"steps", summary.step_count},   {"slices", summary.slice_count},
            {"arrows", summary.arrow_count}, {"span_ms", summary.span_ms},
            {"bubble", summary.bubble},      {"imbalance", summary.imbalance}};
  json["devices"] = Json::array();
  for (const auto& device : summary.devices)
    json["devices"].push_back({{"node", device.node},
                               {"device", device.local_index},
                               {"compute_ms", device.compute_ms},
                               {"update_ms", device.update_ms},
                               {"transfer_ms", device.transfer_ms},
                               {"wait_ms", device.wait_ms},
                               {"offload_ms", device.offload_ms}});
  json["stages"] = Json::array();
  for (const auto& stage : summary.stages)
    json["stages"].push_back({{"name", stage.name},
                              {"node", stage.node},
                              {"device", stage.local_index},
                              {"compute_ms", stage.compute_ms}});
  return json;
}

int trace(const Options& options) {
  if (auto found = check_run_folder(options.run); !found.ok()) return report(found.error());
  const auto path = fs::path(options.run) / "trace.json";
  if (!options.out.empty()) {
    if (auto written = write_out(options, path); !written.ok()) return report(written.error());
    if (!options.json) {
      const bool page = fs::path(options.out).extension() != ".json";
      std::cout << "wrote " << options.out
                << (page ? " (open it in a browser)\n" : " (open it in ui.perfetto.dev)\n");
      return kDone;
    }
  } else if (options.step) {
    return report(usage_error("--step needs --out: the summary is of the whole run",
                              "add --out step.html, or --out step.json for Perfetto"));
  }
  const auto summary = observe::summarize_trace(path);
  if (!summary.ok()) return report(summary.error());
  if (options.json) {
    std::cout << summary_json(summary.value()).dump(2) << '\n';
    return kDone;
  }
  std::cout << printable(to_text(summary.value())) << "\nPerfetto: open " << path.string()
            << " in ui.perfetto.dev\nPage:     troupe trace " << options.run
            << " --step N --out step.html\n";
  return kDone;
}

}  // namespace

void add_trace(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command =
      commands.add("trace", "Show where a run's time went; write a Perfetto trace or page",
                   [options] { return options->timeout.limit([&] { return trace(*options); }); });
  command->add_option("RUN", options->run, "A run folder")->required()->type_name("DIR");
  command
      ->add_option("--step", options->step,
                   "One optimizer step, from 1 (default: all of a trace, the last one of a page)")
      ->type_name("N");
  command
      ->add_option("--out", options->out,
                   "Write FILE.json for Perfetto, or FILE.html for a browser, without network")
      ->type_name("FILE");
  options->timeout.add_to(*command);
  command->add_flag("--json", options->json, "The summary as JSON");
}

}  // namespace troupe::app
