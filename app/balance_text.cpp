#include "app/balance_text.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>

#include "app/exchange_text.hpp"
#include "app/phase_text.hpp"
#include "app/planning_text.hpp"
#include "app/terminal.hpp"
#include "app/text_table.hpp"

namespace troupe::app {

namespace {

constexpr std::size_t kBarsMax = 32;  // Microbatches in a line of the picture.
constexpr std::size_t kFew = 4;       // Policies of which there is room for more than a row.

// One bar per microbatch, eight heights, replicas between strokes; full height is `largest`.
std::string bars(const std::vector<std::vector<double>>& loads, double largest) {
  static constexpr const char* kHeights[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string text = "|";
  std::size_t shown = 0;
  for (std::size_t r = 0; r < loads.size(); ++r) {
    if (shown >= kBarsMax) return text + " and " + std::to_string(loads.size() - r) + " more";
    for (const double ms : loads[r])
      if (shown++ < kBarsMax)
        text += kHeights[largest > 0 ? static_cast<int>(8 * ms / largest + 0.5) : 0];
    text += "|";
  }
  return text;
}

// Of a phase under all policies.
double largest_load(const std::vector<PolicyReport>& reports, std::size_t phase) {
  double largest = 0;
  for (const auto& report : reports)
    for (const auto& replica : report.all.phases[phase].loads)
      for (const double ms : replica) largest = std::max(largest, ms);
  return largest;
}

// Four digits or so, whatever the size.
std::string ms_text(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", ms >= 1000 ? 0 : ms >= 100 ? 1 : ms >= 1 ? 2 : 4, ms);
  return text;
}

double gap_percent(const PolicyAnswer& answer) {
  return answer.lower_bound_ms > 0 ? 100 * (answer.step_ms / answer.lower_bound_ms - 1) : 0;
}

void print_row(const std::string& name, const PolicyReport& report, const PolicyAnswer& answer) {
  const auto encoder =
      report.encoders ? answer.phases[*report.encoders].spread : balancer::Spread{};
  const auto& llm = answer.llm().spread;
  std::printf("%-18s %5.1f %8s %8s %8s %8s %8s %8s %9lld %9lld %9s %7.2f%%\n", name.c_str(),
              answer.microbatches, ms_text(encoder.mean_ms).c_str(),
              ms_text(encoder.std_ms).c_str(), ms_text(encoder.max_ms).c_str(),
              ms_text(llm.mean_ms).c_str(), ms_text(llm.std_ms).c_str(),
              ms_text(llm.max_ms).c_str(), static_cast<long long>(answer.deferred),
              static_cast<long long>(answer.rows_held_max), ms_text(answer.step_ms).c_str(),
              gap_percent(answer));
}

const PolicyReport& shortest(const std::vector<PolicyReport>& reports) {
  return *std::min_element(reports.begin(), reports.end(),
                           [](auto& a, auto& b) { return a.all.step_ms < b.all.step_ms; });
}

}  // namespace

void print_policies(const std::vector<PolicyReport>& reports) {
  std::printf("%-18s %5s %26s %26s %9s %9s %18s\n", "", "K", "encoder microbatch, ms",
              "llm microbatch, ms", "samples", "rows held", "simulated step");
  std::printf("%-18s %5s %8s %8s %8s %8s %8s %8s %9s %9s %9s %8s\n", "policy", "", "mean", "std",
              "max", "mean", "std", "max", "deferred", "at most", "ms", "above");
  for (const auto& report : reports) print_row(report.policy, report, report.all);
  std::fputs(R"(
Forward times; std, step: means over batches; steps with messages and updates, as training runs them.
`above`: over the busiest device's work, or a stage's with its shortest way in and out.
K: microbatches of the llm per replica; a sample that is long makes policies that pair microbatches
take fewer, larger ones, whose deviation compares by its share of the mean.
)",
             stdout);
  const auto& first = reports.front();
  if (first.all.phases.size() > 2)
    std::printf("encoder: %s, whose replicas have most to do.\n",
                first.all.phases[*first.encoders].name.c_str());
  const auto& least = shortest(reports);
  const double random_ms = first.all.step_ms;
  if (random_ms > 0)
    std::printf("Shortest steps: %s, %.1f %% below %s.\n", least.policy.c_str(),
                100 * (1 - least.all.step_ms / random_ms), first.policy.c_str());
  if (reports.size() > kFew) return;
  const auto& last = reports.back();
  std::printf("\n%s, batch by batch:\n", last.policy.c_str());
  for (std::size_t b = 0; b < last.batches.size(); ++b)
    print_row("  batch " + std::to_string(b), last, last.batches[b]);
}

void print_evenness(const std::vector<PolicyReport>& reports) {
  const auto& least = shortest(reports);
  std::vector<std::vector<std::string>> rows{
      {"policy", "phase", "drawn", "planned", "bound", "rows away", "at least"}};
  for (const auto& report : reports) {
    if (reports.size() > kFew && &report != &least) continue;
    for (const auto& phase : report.all.phases) {
      if (phase.loads.size() < 2) continue;
      const auto& [drawn, planned, bound] = phase.balance;
      const bool hands_on = &phase != &report.all.llm();
      rows.push_back({report.policy, phase.name, ratio_text(drawn), ratio_text(planned),
                      ratio_text(bound), hands_on ? percent(phase.far_rows.planned) : "-",
                      hands_on ? percent(phase.far_rows.bound) : "-"});
    }
  }
  if (rows.size() == 1) return;
  std::fputs(R"(
Largest over mean work of a phase's replicas: drawn (as many samples to each, in order), planned, and
the bound of any deal; rows away: those that leave their node for the llm. Means over batches.
)",
             stdout);
  print_table(std::move(rows), {0, 1});
}

void print_exchange(const PolicyQuestion& question, const std::vector<PolicyReport>& reports) {
  std::vector<std::pair<std::string, std::string>> said;  // What, and of whom.
  for (const auto& report : reports) {
    const auto text = exchange_text(question.plan, question.options.exchange, report.exchange);
    if (text.empty()) continue;
    if (said.empty() || said.back().first != text)
      said.emplace_back(text, report.policy);
    else
      said.back().second += ", " + report.policy;
  }
  for (const auto& [text, policies] : said)
    std::printf("%s\n", wrapped(said.size() > 1 ? policies + ": " + text : text, 2).c_str());
}

void print_pictures(const std::vector<PolicyReport>& reports) {
  std::printf("\nMicrobatches of the first batch, in order of execution, replica by replica:\n");
  std::size_t width = 0;
  for (const auto& phase : reports.front().all.phases) width = std::max(width, phase.name.size());
  for (const auto& report : reports)
    for (std::size_t g = 0; g < report.all.phases.size(); ++g) {
      const auto& phase = report.all.phases[g];
      std::printf("  %-18s %*s %s\n", g == 0 ? report.policy.c_str() : "", static_cast<int>(width),
                  phase.name.c_str(), bars(phase.loads, largest_load(reports, g)).c_str());
    }
}

}  // namespace troupe::app
