#include "runtime/observe/report_layouts.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "runtime/files/read_stream.hpp"
#include "runtime/observe/html_page.hpp"
#include "runtime/observe/plan_words.hpp"
#include "runtime/observe/report.hpp"

namespace troupe::observe {

namespace {

constexpr std::size_t kLayoutsMax = 50;
constexpr std::size_t kHoldersMax = 64;  // Of a layout, on the page.

using StepsByGeneration = std::map<EpochNumber, std::pair<std::int64_t, std::int64_t>>;

StepsByGeneration steps_of(const MetricsTable& metrics) {
  StepsByGeneration found;
  const auto* column = metrics.find("epoch_number");
  if (column == nullptr) return found;
  for (std::size_t i = 0; i < column->size(); ++i) {
    if (!((*column)[i] >= 1 && (*column)[i] < 4e9)) continue;  // NaN neither.
    const auto step = std::llround(metrics.steps[i]);
    const auto generation = static_cast<EpochNumber>(std::llround((*column)[i]));
    auto& [first, last] = found.try_emplace(generation, step, step).first->second;
    first = std::min<std::int64_t>(first, step);
    last = std::max<std::int64_t>(last, step);
  }
  return found;
}

/// Saves do not, nor what becomes of a node's speed; what has no kind follows from metrics.
bool changes_layout(const std::string& kind) {
  return !kind.empty() && kind != "checkpoint" && kind != "incomplete" && kind != "slow" &&
         kind != "fast-again";
}

std::string why_of(const std::vector<ReportedEvent>& events, EpochNumber generation) {
  std::string why;
  for (const ReportedEvent& event : events)
    if (event.generation == generation && changes_layout(event.kind))
      why += (why.empty() ? "" : " ") + event.words;
  return why;
}

std::optional<ParallelPlan> plan_of(const RunRecord& run, EpochNumber generation) {
  if (run.plan && run.plan->epoch_number == generation) return run.plan->plan;
  const auto name = "plan-" + std::to_string(generation) + ".json";
  const auto text = files::read_whole(run.folder / name);
  if (!text) return std::nullopt;
  auto read = parse_plan(*text);
  if (!read.ok() || read.value().epoch_number != generation) return std::nullopt;
  return std::move(read).value().plan;
}

std::string holder_text(const ReportedHolder& holder) {
  std::string text = "node " + std::to_string(holder.node.value) + ": ";
  for (std::size_t i = 0; i < holder.stages.size(); ++i)
    text += (i == 0 ? "" : "; ") + holder.stages[i];
  if (holder.stages.empty()) text += holder.standbys > 0 ? "standing by" : "no work";
  if (holder.standbys > 0)
    text += (holder.stages.empty() ? ": holds " : "; stands by for ") +
            std::to_string(holder.standbys) + " layers and tied parameters";
  return text;
}

std::string holders_html(const ReportedLayout& layout) {
  if (layout.words.empty()) return "not recorded";
  std::string html = "<details><summary>" + html_text(layout.words) + "</summary>\n<ul>";
  const auto shown = std::min(layout.holders.size(), kHoldersMax);
  for (std::size_t i = 0; i < shown; ++i)
    html += "<li>" + html_text(holder_text(layout.holders[i])) + "</li>\n";
  if (shown < layout.holders.size())
    html += "<li>and " + std::to_string(layout.holders.size() - shown) + " nodes more</li>\n";
  return html + "</ul></details>";
}

std::string steps_text(const ReportedLayout& layout) {
  if (layout.first_step == 0) return "none yet";
  if (layout.first_step == layout.last_step) return std::to_string(layout.first_step);
  return std::to_string(layout.first_step) + " to " + std::to_string(layout.last_step);
}

std::string why_text(const ReportedLayout& layout) {
  if (!layout.why.empty()) return layout.why;
  return layout.generation == 1 ? "The job began." : "No event: on the way to a later one.";
}

}  // namespace

std::vector<ReportedHolder> holders_of(const ParallelPlan& plan) {
  std::map<NodeId, ReportedHolder> by_node;
  for (const NodeId node : plan.nodes()) by_node[node].node = node;
  for (const Stage& stage : plan.stages) {
    // All devices of a stage are of one node.
    const NodeId node = plan.devices[stage.devices.front().index()].node;
    by_node[node].stages.push_back(stage_words(plan, stage) + " of replica " +
                                   std::to_string(stage.replica.value));
  }
  for (const Standby& standby : plan.standbys)
    ++by_node[plan.devices[standby.device.index()].node].standbys;
  std::vector<ReportedHolder> holders;
  for (auto& [node, holder] : by_node) holders.push_back(std::move(holder));
  return holders;
}

ReportedLayouts read_layouts(const RunRecord& run) {
  StepsByGeneration steps = steps_of(run.metrics);
  if (run.plan) steps.try_emplace(run.plan->epoch_number, 0, 0);
  ReportedLayouts layouts;
  layouts.older = steps.size() - std::min(steps.size(), kLayoutsMax);
  auto next = steps.begin();
  for (std::size_t skipped = 0; skipped < layouts.older; ++skipped) ++next;
  for (; next != steps.end(); ++next) {
    ReportedLayout layout;
    layout.generation = next->first;
    std::tie(layout.first_step, layout.last_step) = next->second;
    layout.why = why_of(run.events, layout.generation);
    if (const auto plan = plan_of(run, layout.generation)) {
      layout.words = layout_words(*plan);
      layout.holders = holders_of(*plan);
    }
    layouts.newest.push_back(std::move(layout));
  }
  return layouts;
}

std::string layouts_table(const RunRecord& run) {
  const ReportedLayouts& layouts = run.layouts;
  if (layouts.newest.size() < 2) return "";
  std::string html = "<h2 id=\"layouts\">Layouts of the run</h2>\n<p class=\"note\">";
  if (layouts.older > 0)
    html += "The last " + std::to_string(layouts.newest.size()) + " of " +
            std::to_string(layouts.newest.size() + layouts.older) + ". ";
  html +=
      "A generation lasts from one change to the next. Layers and replicas count from 0.</p>\n"
      "<div class=\"scroll\"><table><thead><tr>";
  for (const auto* head : {"Generation", "Steps", "Nodes"})
    html += std::string("<th scope=\"col\">") + head + "</th>";
  for (const auto* head : {"Who held what", "Why"})
    html += std::string("<th scope=\"col\" class=\"text\">") + head + "</th>";
  html += "</tr></thead>\n<tbody>\n";
  for (const ReportedLayout& layout : layouts.newest)
    html += "<tr><th scope=\"row\">" + std::to_string(layout.generation) + "</th><td>" +
            steps_text(layout) + "</td><td>" +
            (layout.holders.empty() ? "" : std::to_string(layout.holders.size())) +
            "</td><td class=\"text\">" + holders_html(layout) + "</td><td class=\"text\">" +
            html_text(why_text(layout)) + "</td></tr>\n";
  return html + "</tbody></table></div>\n";
}

}  // namespace troupe::observe
