#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "runtime/observe/html_page.hpp"
#include "runtime/observe/report_parts.hpp"

namespace troupe::observe {

namespace {

constexpr std::size_t kRowsMax = 50;

struct KindWords {
  std::string_view kind;
  std::string_view words;  ///< In the legend and the table.
  std::string_view look;   ///< Class of page.css.
};
constexpr std::array<KindWords, 11> kKinds{{
    {"checkpoint", "checkpoint", "m-checkpoint"},
    {"incomplete", "incomplete save", "m-lost"},
    {"resumed", "resumed", "m-resumed"},
    {"layout", "another layout", "m-layout"},
    {"lost", "node lost", "m-lost"},
    {"began-without", "node missing at the start", "m-began-without"},
    {"joined", "node joined", "m-joined"},
    {"drained", "node drained", "m-drained"},
    {"head-lost", "head lost", "m-lost"},
    {"slow", "node slow", "m-slow"},
    {"fast-again", "node fast again", "m-fast-again"},
}};

const KindWords* find_kind(const std::string& kind) {
  const auto found = std::find_if(kKinds.begin(), kKinds.end(),
                                  [&](const KindWords& known) { return known.kind == kind; });
  return found == kKinds.end() ? nullptr : &*found;
}

/// The step that a reader looks for: a save holds the state of the one before.
std::int64_t shown_step(const ReportedEvent& event) {
  const bool is_save = event.kind == "checkpoint" || event.kind == "incomplete";
  return is_save ? event.step - 1 : event.step;
}

std::string cell(double value) {
  return "<td>" + (value > 0 ? figure(value) : std::string()) + "</td>";
}

std::string text_cell(const std::string& text) {
  return "<td class=\"text\">" + html_text(text) + "</td>";
}

}  // namespace

std::vector<ChartMark> event_marks(const RunRecord& run) {
  std::vector<ChartMark> marks;
  for (const ReportedEvent& event : run.events)
    if (const KindWords* kind = find_kind(event.kind))
      marks.push_back({static_cast<double>(shown_step(event)), std::string(kind->words),
                       std::string(kind->look)});
  return marks;
}

std::string events_table(const RunRecord& run) {
  std::vector<const ReportedEvent*> recorded;
  for (const ReportedEvent& event : run.events)
    if (!event.kind.empty()) recorded.push_back(&event);
  if (recorded.empty()) return "";
  std::string html = "<h2 id=\"events\">Checkpoints and changes</h2>\n";
  const auto shown = std::min(recorded.size(), kRowsMax);
  if (shown < recorded.size())
    html += "<p class=\"note\">The last " + std::to_string(shown) + " of " +
            std::to_string(recorded.size()) + " in events.jsonl.</p>\n";
  html += "<div class=\"scroll\"><table><thead><tr>";
  for (const auto* head : {"Step", "What", "When (UTC)"})
    html += std::string("<th scope=\"col\" class=\"text\">") + head + "</th>";
  for (const auto* head : {"Took, ms", "Size, MB"})
    html += std::string("<th scope=\"col\">") + head + "</th>";
  html += "<th scope=\"col\" class=\"text\">Details</th></tr></thead>\n<tbody>\n";
  for (auto i = recorded.size() - shown; i < recorded.size(); ++i) {
    const ReportedEvent& event = *recorded[i];
    const KindWords* kind = find_kind(event.kind);
    html += "<tr><th scope=\"row\">" + std::to_string(shown_step(event)) + "</th>" +
            text_cell(kind != nullptr ? std::string(kind->words) : event.kind) +
            "<td class=\"text time\">" + html_text(event.time) + "</td>" +
            cell(std::round(event.took_ms * 10) / 10) + cell(std::round(event.bytes / 1e4) / 1e2) +
            text_cell(event.details) + "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace troupe::observe
