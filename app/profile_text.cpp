#include "app/profile_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "app/terminal.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "runtime/vocabulary/joined.hpp"

namespace troupe::app {

namespace {

void print_kinds(const ProfileFindings& findings) {
  const auto errors = findings.costs.errors();
  std::printf("\n%-26s %-3s %-3s %-9s %7s %10s %10s %10s %10s %9s %7s\n", "kind", "tp", "cp",
              "origin", "tokens", "forward", "input g.", "weight g.", "attention", "kept", "error");
  for (const auto& kind : findings.obtained.profile.profiles) {
    const auto error = std::find_if(errors.begin(), errors.end(), [&](const auto& entry) {
      return entry.kind == kind.kind && entry.parallelism == kind.parallelism;
    });
    for (std::size_t p = 0; p < kind.points.size(); ++p) {
      const auto& point = kind.points[p];
      // Sizes of every second power, and the last.
      if (p % 3 != 2 && p + 1 != kind.points.size()) continue;
      const bool last = p + 1 == kind.points.size();
      const auto& attention = point.attention;
      std::printf("%-26s %-3d %-3d %-9s %7lld %7.2f ms %7.2f ms %7.2f ms %7.2f ms %6.2f MB",
                  kind.kind.c_str(), kind.parallelism.tp, kind.parallelism.cp,
                  std::string(to_string(kind.origin)).c_str(), static_cast<long long>(point.tokens),
                  point.linear.forward_ms, point.linear.input_grad_ms, point.linear.weight_grad_ms,
                  attention.forward_ms + attention.input_grad_ms,
                  (point.linear.activation_bytes + attention.activation_bytes) / 1e6);
      if (last && error != errors.end())
        std::printf(" %6.1f%%  %s", 100 * error->left_out.mean, error->curve.c_str());
      std::printf("\n");
    }
  }
  std::printf(
      "error: on sizes left out of the fit, mean over sizes, of the worst curve: forward, input "
      "or\n"
      "       weight gradient, bytes kept, of linear parts or attention.\n");
  if (const auto* worst = worst_kind(errors))
    std::printf("worst: %s of %s (%s) at tp %d, cp %d: %.1f %%, and %.1f %% at %.0f tokens\n",
                worst->curve.c_str(), worst->kind.c_str(),
                joined(module_names(worst->modules, findings.costs.graph())).c_str(),
                worst->parallelism.tp, worst->parallelism.cp, 100 * worst->left_out.mean,
                100 * worst->left_out.worst, worst->left_out.worst_at_tokens);
  const auto& kinds = findings.obtained.profile.profiles;
  if (std::any_of(kinds.begin(), kinds.end(),
                  [](const auto& kind) { return kind.origin == scheduler::CostOrigin::modelled; }))
    std::printf("modelled: %s at the speed of the node's link below.\n", engine::kModelledHow);
}

void print_lengths(const char* name, const engine::LengthDistribution& lengths) {
  if (lengths.count == 0) return;
  std::printf("%-26s mean %8.1f  std %8.1f  p50 %6lld  p95 %6lld  p99 %6lld  max %6lld\n", name,
              lengths.mean, lengths.deviation, static_cast<long long>(lengths.p50),
              static_cast<long long>(lengths.p95), static_cast<long long>(lengths.p99),
              static_cast<long long>(lengths.largest));
}

void print_data(const ProfileFindings& findings) {
  if (!findings.data) return;
  const auto& data = *findings.data;
  std::printf("\n");
  for (const auto& encoder : data.encoders) {
    print_lengths((encoder.module + " rows per item").c_str(), encoder.item_rows);
    print_lengths((encoder.module + " rows per sample").c_str(), encoder.sample_rows);
  }
  print_lengths("llm tokens", data.llm_tokens);
  print_lengths("trained tokens", data.trained_tokens);
}

std::string text_of(const char* name, const scheduler::LinkSpeed& link) {
  char text[96];
  std::snprintf(text, sizeof text, "%s %.3f ms + bytes at %.1f GB/s", name, link.latency_ms,
                link.gigabytes_per_s);
  return text;
}

void print_links(const ProfileFindings& findings) {
  const auto& speeds = findings.obtained.profile.speeds;
  const std::string origin(to_string(speeds.origin));
  std::printf("\ngradient sums %.1f GB/s, AdamW %.0f M elements/s + %.3f ms a layer (%s)\n",
              speeds.reduce_gigabytes_per_s, speeds.optimizer_elements_per_s / 1e6,
              speeds.optimizer_group_ms, origin.c_str());
  std::printf("links (%s): %s, %s, %s\n", origin.c_str(), text_of("node", speeds.node).c_str(),
              text_of("machine", speeds.machine).c_str(),
              text_of("network", speeds.network).c_str());
  if (speeds.origin == scheduler::CostOrigin::measured)
    std::printf("  %s\n", engine::kMeasuredLinks);
}

/// `verdict  good: ...`, in lines of a narrow terminal.
void print_entry(const char* name, const std::string& text) {
  constexpr std::size_t kIndent = 9;
  std::printf("%-*s%s\n", static_cast<int>(kIndent), name, wrapped(text, kIndent).c_str());
}

/// `12.3 ms on one device, forward and backward: llm 63 %, vision 31 %`: the longest first.
std::string sample_text(const ProfileFindings& findings) {
  const auto& sample = findings.sample;
  std::vector<std::pair<double, std::string>> modules;
  for (std::size_t m = 0; m < sample.module_ms.size(); ++m)
    modules.emplace_back(sample.module_ms[m], findings.costs.graph().modules[m].name);
  std::stable_sort(modules.begin(), modules.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [ms, name] : modules)
    text += (text.empty() ? "" : ", ") + name + " " +
            std::to_string(std::lround(100 * ms / sample.total_ms)) + " %";
  char total[32];
  std::snprintf(total, sizeof total, "%.3g ms", sample.total_ms);
  return "a mean one takes " + std::string(total) + " on one device, forward and backward: " + text;
}

std::string data_text(const ProfileFindings& findings) {
  if (!findings.data) return "not measured: " + findings.data_problem;
  const auto& data = *findings.data;
  return with_commas(data.measured) + " of " + with_commas(data.records) + " samples measured, " +
         with_commas(data.indexed) + " of them by the index, " + with_commas(data.bad) + " bad, " +
         std::to_string(std::lround(100 * data.text_only_share)) + " % text only; llm tokens " +
         with_commas(data.llm_tokens.p50) + " in the middle, " +
         with_commas(data.llm_tokens.largest) + " at most";
}

void print_summary(const ProfileFindings& findings) {
  const auto& obtained = findings.obtained;
  print_entry("device", obtained.profile.device);
  if (obtained.reused)
    print_entry("reused", "valid: same layers, device, software, dtype and threads");
  else if (findings.computed)
    print_entry("computed", "from documented peak numbers; nothing was measured");
  else
    print_entry("measured", "in " + std::to_string(std::lround(obtained.measured_s)) +
                                " s, because " + obtained.reason);
  if (!obtained.file.empty()) print_entry("file", obtained.file.string());
  if (!obtained.measured_at.empty())
    print_entry("quiet", std::to_string(std::lround(100 * obtained.disturbed_share)) +
                             " % of the runs that count were disturbed, " +
                             std::to_string(obtained.repeated) + " repeated; " +
                             obtained.measured_at);
  for (const auto& warning : obtained.warnings) print_entry("warning", warning);
  print_entry("data", data_text(findings));
  if (findings.sample.total_ms > 0) print_entry("sample", sample_text(findings));
  const auto verdict = verdict_of(findings);
  print_entry("verdict", verdict.word + ": " + verdict.why);
}

}  // namespace

scheduler::ProfileVerdict verdict_of(const ProfileFindings& findings) {
  return scheduler::profile_verdict(
      findings.costs, findings.sample,
      {findings.obtained.disturbed_share, !findings.obtained.warnings.empty()});
}

const scheduler::KindError* worst_kind(const std::vector<scheduler::KindError>& errors) {
  const auto worst = std::max_element(
      errors.begin(), errors.end(),
      [](const auto& a, const auto& b) { return a.left_out.mean < b.left_out.mean; });
  return worst != errors.end() && worst->left_out.mean > 0 ? &*worst : nullptr;
}

std::vector<std::string> module_names(const std::vector<ModuleId>& modules,
                                      const ModelGraph& model) {
  std::vector<std::string> names;
  for (const auto module : modules) names.push_back(model.at(module).name);
  return names;
}

void print_profile(const ProfileFindings& findings, bool all) {
  print_summary(findings);
  if (!all) {
    std::printf("\n-v shows every kind of layer, the links and all lengths\n");
    return;
  }
  print_kinds(findings);
  print_links(findings);
  print_data(findings);
}

}  // namespace troupe::app
