#include "runtime/observe/timeline_page.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/observe/html_page.hpp"
#include "runtime/observe/line_file.hpp"
#include "runtime/observe/trace_writer.hpp"

namespace troupe::observe {

namespace {

using Json = nlohmann::ordered_json;

// Tenths of a microsecond: finer than any clock here, and short in the file.
double rounded(double ms) { return std::round(ms * 1e4) / 1e4; }

std::string lane_name(const TimelineLane& lane) {
  const auto device = "device " + std::to_string(lane.slot.local_index);
  return lane.slot.node.valid() ? "node " + std::to_string(lane.slot.node.value) + ", " + device
                                : device;
}

// One array per field: a third of the size of one object per interval.
Json columns(const Timeline& timeline) {
  Json lane = Json::array(), begin = Json::array(), end = Json::array(), kind = Json::array(),
       stage = Json::array(), microbatch = Json::array(), part = Json::array(),
       bytes = Json::array(), subject = Json::array();
  std::vector<std::string> subjects;
  std::map<std::string, int> subject_index;
  for (const auto& interval : timeline.intervals) {
    lane.push_back(interval.lane);
    begin.push_back(rounded(interval.begin_ms));
    end.push_back(rounded(interval.end_ms));
    kind.push_back(static_cast<int>(interval.kind));
    stage.push_back(interval.stage);
    microbatch.push_back(interval.microbatch);
    part.push_back(interval.part);
    bytes.push_back(interval.bytes);
    int named = -1;
    if (!interval.subject.empty()) {
      const auto next = static_cast<int>(subjects.size());
      const auto [place, fresh] = subject_index.try_emplace(interval.subject, next);
      if (fresh) subjects.push_back(interval.subject);
      named = place->second;
    }
    subject.push_back(named);
  }
  return {{"lane", lane},       {"begin", begin},           {"end", end},   {"kind", kind},
          {"stage", stage},     {"microbatch", microbatch}, {"part", part}, {"bytes", bytes},
          {"subject", subject}, {"subjects", subjects}};
}

std::string data_json(const Timeline& timeline) {
  Json kinds = Json::array(), lanes = Json::array(), links = Json::array(), marks = Json::array();
  for (int kind = 0; kind <= static_cast<int>(ActionKind::optimizer_step); ++kind)
    kinds.push_back(std::string(to_string(static_cast<ActionKind>(kind))));
  for (const auto& lane : timeline.lanes)
    lanes.push_back({{"name", lane_name(lane)},
                     {"node", lane.slot.node.value},
                     {"device", lane.slot.local_index},
                     {"stages", lane.stages}});
  for (const auto& link : timeline.links) links.push_back(Json::array({link.from, link.to}));
  for (const auto& mark : timeline.marks)
    marks.push_back({{"at", rounded(mark.at_ms)}, {"kind", mark.kind}, {"name", mark.name}});
  const Json data = {{"title", timeline.title},
                     {"span_ms", rounded(timeline.span_ms())},
                     {"kinds", kinds},
                     {"lanes", lanes},
                     {"stages", timeline.stages},
                     {"intervals", columns(timeline)},
                     {"links", std::move(links)},
                     {"marks", std::move(marks)}};
  return script_json(data.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Device by device, for who cannot see the picture or wants the numbers.
std::string times_table(const Timeline& timeline) {
  std::string table =
      "<details class=\"times\"><summary>Times of each device</summary>\n<div class=\"scroll\">"
      "<table><thead><tr><th scope=\"col\">Device</th><th scope=\"col\">Stages</th>";
  for (const auto* head : {"Forward, ms", "Backward, ms", "Reduce and update, ms", "Transfer, ms",
                           "Waiting, ms", "Computing, %"})
    table += std::string("<th scope=\"col\">") + head + "</th>";
  table += "</tr></thead>\n<tbody>\n";
  const auto times = lane_times(timeline);
  const double span = timeline.span_ms();
  const auto cell = [&](double value) { table += "<td>" + figure(value) + "</td>"; };
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto& lane = timeline.lanes[i];
    const auto& time = times[i];
    table += "<tr><th scope=\"row\">" + html_text(lane_name(lane)) + "</th><td class=\"text\">" +
             html_text(lane.stages) + "</td>";
    for (const double value :
         {time.forward_ms, time.backward_ms, time.update_ms, time.transfer_ms, time.wait_ms})
      cell(rounded(value));
    cell(span > 0 ? std::round(1000 * (time.forward_ms + time.backward_ms) / span) / 10 : 0);
    table += "</tr>\n";
  }
  return table + "</tbody></table></div></details>\n";
}

// For who does not see the picture, and with the reason, which has no room there.
std::string marks_list(const Timeline& timeline) {
  if (timeline.marks.empty()) return "";
  std::string list = "<ul class=\"marks\">\n";
  for (const auto& mark : timeline.marks) {
    const bool before = mark.at_ms < 0;
    list += "<li><b>" + html_text(mark.name) + "</b> " + figure(rounded(std::abs(mark.at_ms))) +
            (before ? " ms before the first action shown" : " ms into the step") +
            (mark.why.empty() ? "" : ": " + html_text(mark.why)) + "</li>\n";
  }
  return list + "</ul>\n";
}

std::string summary(const Timeline& timeline) {
  double compute = 0;
  for (const auto& time : lane_times(timeline)) compute += time.forward_ms + time.backward_ms;
  const double room = timeline.span_ms() * static_cast<double>(timeline.lanes.size());
  const double share = room > 0 ? std::round(1000 * compute / room) / 10 : 0;
  return figure(rounded(timeline.span_ms())) + " ms, " + std::to_string(timeline.lanes.size()) +
         (timeline.lanes.size() == 1 ? " device" : " devices") + " computing " + figure(share) +
         " % of it.";
}

}  // namespace

std::string timeline_section(const Timeline& timeline, int number) {
  const auto id = "timeline-" + std::to_string(number);
  std::string section = "<section class=\"timeline\" id=\"" + id + "\" aria-labelledby=\"" + id +
                        "-title\">\n<h2 id=\"" + id + "-title\">" + html_text(timeline.title) +
                        "</h2>\n<p class=\"note\">" + html_text(summary(timeline));
  if (!timeline.note.empty()) section += " " + html_text(timeline.note);
  section += "</p>\n" + marks_list(timeline) +
             "<div class=\"view\"><noscript><p>The picture needs JavaScript; the table below "
             "does not.</p></noscript></div>\n";
  section += times_table(timeline);
  section += "<script type=\"application/json\">" + data_json(timeline) + "</script>\n</section>\n";
  return section;
}

std::string timeline_page(const std::string& title, std::span<const Timeline> timelines) {
  std::string body;
  int number = 0;
  for (const auto& timeline : timelines) body += timeline_section(timeline, number++);
  if (timelines.empty()) body = "<p>No timeline.</p>\n";
  return html_page(title, "", body);
}

Status write_timeline_file(const std::filesystem::path& path, const std::string& title,
                           std::span<const TraceEvent> events, const TraceNames& names) {
  const auto suffix = path.extension().string();
  if (suffix == ".html" || suffix == ".htm") {
    auto timeline = make_timeline(events, names);
    timeline.title = title;
    return write_whole_file(path, timeline_page(title, {&timeline, 1}));
  }
  if (suffix != ".json")
    return Error{
        Errc::invalid_argument,
        "a timeline is written as .html (a page) or .json (for Perfetto), not as '" + suffix + "'",
        path.string(), "name the file with one of those endings"};
  std::int64_t zero_ns = events.empty() ? 0 : events.front().begin_ns;
  for (const auto& event : events) zero_ns = std::min(zero_ns, event.begin_ns);
  auto writer = TraceWriter::open(path, zero_ns);
  if (!writer) return std::move(writer).error();
  if (auto named = writer.value().set_names(names); !named.ok()) return named;
  return writer.value().write(events);
}

}  // namespace troupe::observe
