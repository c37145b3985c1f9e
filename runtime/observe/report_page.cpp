#include <algorithm>
#include <cmath>
#include <string_view>

#include "runtime/observe/html_page.hpp"
#include "runtime/observe/report.hpp"
#include "runtime/observe/report_parts.hpp"
#include "runtime/observe/timeline_page.hpp"
#include "runtime/observe/trace_names.hpp"

namespace troupe::observe {

namespace {

constexpr std::size_t kSamplesMax = 50;  // Rows of the table of bad samples.

std::string notes_html(const std::vector<std::string>& notes, std::string_view heading) {
  if (notes.empty()) return "";
  std::string html = "<div class=\"missing\"><p>" + html_text(heading) + "</p><ul>\n";
  for (const auto& note : notes) html += "<li>" + html_text(note) + "</li>\n";
  return html + "</ul></div>\n";
}

std::string layers_of(const ParallelPlan& plan, const LayerRun& run) {
  const auto& module = plan.model.at(run.module);
  const auto count = static_cast<std::int32_t>(module.layers.size());
  std::string text = module.name;
  if (run.layers.begin == 0 && run.layers.end == count) return text + " (all)";
  return text + " " + std::to_string(run.layers.begin) + " to " +
         std::to_string(run.layers.end - 1);
}

std::int64_t elements_of(const ParallelPlan& plan, const Stage& stage) {
  std::int64_t count = 0;
  for (const auto& run : stage.runs)
    for (auto layer = run.layers.begin; layer < run.layers.end; ++layer) {
      const auto& spec = plan.model.at(run.module).layers[static_cast<std::size_t>(layer)];
      count += spec.parameter_elements + spec.constant_elements;
    }
  // A stage keeps a tied parameter that any of its layers uses, once.
  for (const auto& tied : plan.model.tied)
    if (std::any_of(tied.layers.begin(), tied.layers.end(), [&](const LayerId& use) {
          return std::any_of(stage.runs.begin(), stage.runs.end(), [&](const LayerRun& run) {
            return run.module == use.module && run.layers.begin <= use.layer &&
                   use.layer < run.layers.end;
          });
        }))
      count += tied.parameter_elements;
  return count;
}

std::string layout_html(const RunRecord& run) {
  if (!run.plan) return "";
  const auto& plan = run.plan->plan;
  const auto names = stage_names(plan);
  std::string html = "<h2 id=\"layout\">Layout</h2>\n<p class=\"note\">Configuration " +
                     std::to_string(run.plan->epoch_number) + ": " +
                     std::to_string(plan.pipelines.size()) + " pipelines, " +
                     std::to_string(plan.stages.size()) + " stages on " +
                     std::to_string(plan.devices.size()) +
                     " devices. Layers count from 0.</p>\n<div class=\"scroll\"><table><thead><tr>";
  for (const auto* head : {"Pipeline", "Stage", "Layers", "Place"})
    html += std::string("<th scope=\"col\" class=\"text\">") + head + "</th>";
  html += "<th scope=\"col\">Parameters, million</th></tr></thead>\n<tbody>\n";
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const auto& stage = plan.stages[i];
    std::string layers, place;
    for (const auto& run_of : stage.runs)
      layers += (layers.empty() ? "" : ", ") + layers_of(plan, run_of);
    for (const auto device : stage.devices) {
      const auto& slot = plan.devices[device.index()];
      place += (place.empty() ? "node " : "; node ") + std::to_string(slot.node.value) +
               ", device " + std::to_string(slot.local_index);
    }
    html += "<tr><td class=\"text\">" + std::to_string(plan.pipeline_of(StageId{i}).value) +
            "</td><th scope=\"row\">" + html_text(names[i]) + "</th><td class=\"text\">" +
            html_text(layers) + "</td><td class=\"text\">" + html_text(place) + "</td><td>" +
            figure(std::round(static_cast<double>(elements_of(plan, stage)) / 1e3) / 1e3) +
            "</td></tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string samples_html(const RunRecord& run) {
  if (run.bad_samples.empty()) return "";
  std::string html = "<h2 id=\"bad-samples\">Bad samples</h2>\n";
  const auto shown = std::min(run.bad_samples.size(), kSamplesMax);
  html += "<p class=\"note\">" + std::to_string(run.bad_samples.size()) + " were not trained";
  if (shown < run.bad_samples.size())
    html += "; the first " + std::to_string(shown) + " of bad_samples.jsonl";
  html +=
      ".</p>\n<div class=\"scroll\"><table><thead><tr><th scope=\"col\" class=\"text\">Sample"
      "</th><th scope=\"col\" class=\"text\">Why</th></tr></thead>\n<tbody>\n";
  for (std::size_t i = 0; i < shown; ++i)
    html += "<tr><th scope=\"row\">" + html_text(run.bad_samples[i].id) +
            "</th><td class=\"text\">" + html_text(run.bad_samples[i].why) + "</td></tr>\n";
  return html + "</tbody></table></div>\n";
}

std::string job_html(const RunRecord& run) {
  if (run.resolved_job.empty()) return "";
  return "<h2>Job</h2>\n<details><summary>Every value and where it came from "
         "(resolved.toml)</summary>\n<pre>" +
         html_text(run.resolved_job) + "</pre></details>\n";
}

}  // namespace

std::string report_page(const RunRecord& run, const std::vector<Timeline>& timelines,
                        const std::string& no_timeline) {
  std::string body = head_html(run);
  body += leading_charts(run) + events_table(run) + all_figures_html(run) + further_charts(run);
  body += notes_html(missing_figures(run), "What this run did not record:");
  int number = 0;
  for (const auto& timeline : timelines) body += timeline_section(timeline, number++);
  if (timelines.empty())
    body += "<h2>Timeline</h2>\n<p class=\"missing\">" + html_text(no_timeline) + "</p>\n";
  body += layout_html(run) + layouts_table(run) + samples_html(run);
  body += notes_html(run.notes, "About this run folder:") + job_html(run);
  return html_page("Run " + run.name, run.folder.string(), body);
}

}  // namespace troupe::observe
