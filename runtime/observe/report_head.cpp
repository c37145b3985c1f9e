#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "runtime/observe/html_page.hpp"
#include "runtime/observe/plan_words.hpp"
#include "runtime/observe/report_parts.hpp"

namespace troupe::observe {

namespace {

constexpr std::size_t kEventsMax = 3, kEventsFoldedMax = 200, kReasonsMax = 3;
constexpr std::size_t kReasonBytesMax = 160;

// 12345 as 12,345.
std::string counted(std::int64_t count) {
  auto text = std::to_string(count);
  for (auto place = static_cast<std::ptrdiff_t>(text.size()) - 3; place > 0; place -= 3)
    text.insert(static_cast<std::size_t>(place), ",");
  return text;
}

std::string counted(std::size_t count, const std::string& what) {
  return counted(static_cast<std::int64_t>(count)) + " " + what + (count == 1 ? "" : "s");
}

// 1234567 as 1.235 million.
std::string in_words(std::int64_t count) {
  const auto value = static_cast<double>(count);
  if (value >= 1e9) return figure(value / 1e9) + " billion";
  if (value >= 1e6) return figure(value / 1e6) + " million";
  return counted(count);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const auto& part : parts)
    if (!part.empty()) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string date_text(const RunRecord& run) {
  if (!run.facts || run.facts->started_s == 0) return "";
  const auto& facts = *run.facts;
  std::string text = minute_text(facts.started_s);
  if (facts.end) text += ", took " + duration_text(facts.end->time_s - facts.started_s);
  return text;
}

std::string machine_text(const RunFacts& facts) {
  auto text = joined(
      {facts.host, facts.cores > 0 ? std::to_string(facts.cores) + " cores" : "", facts.processor});
  if (facts.nodes > facts.local_nodes)
    text += "; " + std::to_string(facts.nodes - facts.local_nodes) + " of " +
            std::to_string(facts.nodes) + " nodes elsewhere";
  return text;
}

std::string parameters_text(const RunRecord& run) {
  if (!run.plan) return "";
  std::int64_t all = 0, trained = 0;
  std::vector<std::string> modules;
  const auto& model = run.plan->plan.model;
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const auto& module = model.modules[m];
    const auto own = module_elements(model, ModuleId{m});
    all += own.all;
    trained += own.trained;
    modules.push_back(module.name + " " + in_words(own.all) + (module.freeze ? " (frozen)" : ""));
  }
  return in_words(all) +
         (trained == all ? ", all trained" : ", of which " + in_words(trained) + " are trained") +
         ": " + joined(modules);
}

std::string layout_text(const RunRecord& run) {
  std::vector<std::string> parts;
  if (run.plan) {
    const auto& plan = run.plan->plan;
    std::vector<NodeId> nodes;
    for (const auto& slot : plan.devices) nodes.push_back(slot.node);
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    parts.push_back(layout_words(plan) + " on " + counted(plan.devices.size(), "device") + " of " +
                    counted(nodes.size(), "node"));
  }
  if (run.facts) {
    const auto& facts = *run.facts;
    if (!facts.schedule.empty()) parts.push_back("schedule " + facts.schedule);
    if (!facts.policy.empty()) parts.push_back("balancing " + facts.policy);
    if (facts.batch > 0) parts.push_back(counted(facts.batch) + " samples per step");
    parts.push_back(facts.dtype);
  }
  return joined(parts);
}

std::string about_html(const RunRecord& run) {
  const RunFacts facts = run.facts.value_or(RunFacts{});
  std::string html = "<dl class=\"about\">\n";
  const auto add = [&](std::string_view what, const std::string& value) {
    html += "<div><dt>" + std::string(what) + "</dt><dd>" +
            (value.empty() ? "<span class=\"muted\">not recorded</span>" : html_text(value)) +
            "</dd></div>\n";
  };
  const bool failed = facts.end && facts.end->exit_code != 0;
  html += std::string("<div class=\"outcome") + (failed ? " failed" : "") +
          "\"><dt>Outcome</dt><dd>" + html_text(outcome(run)) + "</dd></div>\n";
  add("Job", facts.job + (facts.command.empty() ? "" : ": " + facts.command));
  add("Date", date_text(run));
  add("Machine", machine_text(facts));
  add("Version", joined({facts.version.empty() ? "" : "troupe " + facts.version, facts.libraries}));
  add("Parameters", parameters_text(run));
  add("Layout", layout_text(run));
  return html + "</dl>\n";
}

std::string tiles(const std::vector<ReportFigure>& figures) {
  std::string html = "<dl class=\"facts\">\n";
  for (const auto& each : figures) {
    const bool count = each.key == "steps" || each.key == "bad_samples";
    html += "<div><dt>" + html_text(each.words) + "</dt><dd>" +
            (count ? counted(static_cast<std::int64_t>(each.value)) : figure(each.value));
    if (!each.unit.empty()) html += " <small>" + html_text(each.unit) + "</small>";
    html += "</dd></div>\n";
  }
  return html + "</dl>\n";
}

bool comes_first(const ReportFigure& figure) {
  constexpr std::string_view kFirst[]{"steps",
                                      "loss_last",
                                      "loss_smoothed_last",
                                      "held_out_loss_last",
                                      "tokens_per_s",
                                      "mfu_percent_mean",
                                      "samples_per_s",
                                      "step_ms_median",
                                      "bubble_percent_mean"};
  return std::find(std::begin(kFirst), std::end(kFirst), figure.key) != std::end(kFirst);
}

// The commonest reasons, with how often: thousands of samples mostly fail for one of a few.
std::string samples_words(const RunRecord& run) {
  std::map<std::string, std::size_t> counts;
  for (const auto& sample : run.bad_samples) ++counts[sample.why];
  std::vector<std::pair<std::size_t, std::string>> reasons;
  for (const auto& [why, count] : counts) reasons.emplace_back(count, why);
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string html = "<p>" + counted(run.bad_samples.size(), "bad sample") +
                     (run.bad_samples.size() == 1 ? " was" : " were") +
                     " not trained (<a href=\"#bad-samples\">which</a>):</p>\n<ul>\n";
  for (std::size_t i = 0; i < std::min(reasons.size(), kReasonsMax); ++i) {
    auto why = reasons[i].second;
    if (why.size() > kReasonBytesMax) why = why.substr(0, kReasonBytesMax) + " ...";
    html += "<li>" + counted(static_cast<std::int64_t>(reasons[i].first)) + " x " + html_text(why) +
            "</li>\n";
  }
  if (reasons.size() > kReasonsMax)
    html += "<li>" + counted(reasons.size() - kReasonsMax, "other reason") + "</li>\n";
  return html + "</ul>\n";
}

std::string event_rows(const std::vector<ReportedEvent>& events, std::size_t begin,
                       std::size_t end) {
  std::string html = "<ul>\n";
  for (auto i = begin; i < end; ++i)
    html +=
        "<li><b>Step " + counted(events[i].step) + "</b> " + html_text(events[i].words) + "</li>\n";
  return html + "</ul>\n";
}

// What a reader is to notice. Checkpoints are in order: they are counted, and stand in a table.
std::vector<ReportedEvent> notable(const RunRecord& run) {
  auto events = run.events;
  std::erase_if(events, [](const ReportedEvent& event) { return event.kind == "checkpoint"; });
  return events;
}

std::string checkpoints_words(const RunRecord& run) {
  const auto count = run.events.size() - notable(run).size();
  if (count == 0) return "";
  return "<p><a href=\"#events\">" + counted(count, "checkpoint") +
         (count == 1 ? "</a> was written.</p>\n" : "</a> were written.</p>\n");
}

std::string events_words(const std::vector<ReportedEvent>& events) {
  const auto open = std::min(events.size(), kEventsMax);
  const auto folded = std::min(events.size(), open + kEventsFoldedMax);
  std::string html = "<p>" + counted(events.size(), "event") + ":</p>\n";
  html += event_rows(events, 0, open);
  if (folded == open) return html;
  html +=
      "<details><summary>" + counted(events.size() - open, "more event") +
      (folded < events.size() ? ", of which the first " + std::to_string(kEventsFoldedMax) : "") +
      "</summary>\n" + event_rows(events, open, folded) + "</details>\n";
  return html;
}

std::string attention_html(const RunRecord& run) {
  const auto noted = notable(run);
  const bool samples = !run.bad_samples.empty(), events = !noted.empty();
  if (!samples && !events)
    return "<div class=\"calm\"><p>Bad samples: none, every sample could be decoded. Events: "
           "none.</p>\n" +
           checkpoints_words(run) + "</div>\n";
  std::string html = "<section class=\"attention\" aria-label=\"Bad samples and events\">\n";
  html += samples ? "<div>" + samples_words(run) + "</div>\n"
                  : "<p>Bad samples: none, every sample could be decoded.</p>\n";
  html += "<div>" + (events ? events_words(noted) : "<p>Events: none.</p>\n") +
          checkpoints_words(run) + "</div>\n";
  return html + "</section>\n";
}

std::string flat(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ';');
  return text;
}

}  // namespace

std::string outcome(const RunRecord& run) {
  const auto last =
      run.metrics.steps.empty() ? 0 : static_cast<std::int64_t>(run.metrics.steps.back());
  const auto goal = run.facts ? run.facts->steps : 0;
  const auto steps =
      goal > 0 ? "step " + counted(last) + " of " + counted(goal) : "step " + counted(last);
  if (run.running) return "Still running: " + steps + " is done";
  if (!run.facts) return "Not recorded; the last is " + steps;
  const auto& end = run.facts->end;
  if (!end) return "Ended without a word after " + steps + ": killed, or its machine went down";
  if (end->exit_code == 0)
    return goal > 0 ? "Done: " + counted(last) + " of " + counted(goal) + " steps"
                    : "Done: " + counted(last) + " steps";
  static const std::set<std::int32_t> kTold{75, 129, 130, 143};  // Resumable, and three signals.
  const bool told = kTold.contains(end->exit_code);
  const auto why = flat(end->message);
  return (told ? "Stopped after " : "Failed after ") + steps + (why.empty() ? "" : ": " + why);
}

std::string head_html(const RunRecord& run) {
  auto figures = report_figures(run);
  std::erase_if(figures, [](const auto& figure) { return !comes_first(figure); });
  return about_html(run) + attention_html(run) + tiles(figures);
}

std::string all_figures_html(const RunRecord& run) {
  auto figures = report_figures(run);
  std::erase_if(figures, comes_first);
  if (figures.empty()) return "";
  return "<details class=\"more\"><summary>" + counted(figures.size(), "more figure") +
         "</summary>\n" + tiles(figures) + "</details>\n";
}

}  // namespace troupe::observe
