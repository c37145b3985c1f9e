#include "runtime/observe/report_words.hpp"

#include <algorithm>
#include <cctype>
#include <map>

namespace troupe::observe {

namespace {

const std::map<std::string, KeyWords>& known() {
  static const std::map<std::string, KeyWords> words{
      {"loss", {"Loss", "per trained token"}},
      {"held_out_loss", {"Loss on held-out samples", "per trained token"}},
      {"lr", {"Learning rate", ""}},
      {"grad_norm", {"Gradient norm", ""}},
      {"samples", {"Samples", "per step"}},
      {"tokens", {"Tokens", "per step"}},
      {"trained_tokens", {"Trained tokens", "per step"}},
      {"tokens_per_s", {"Throughput", "tokens/s"}},
      {"samples_per_s", {"Throughput", "samples/s"}},
      {"tflops_per_device", {"Model arithmetic per device", "TFLOP/s"}},
      {"mfu", {"Model FLOPs utilization (MFU)", "%", 100}},
      {"step_ms", {"Step time", "ms"}},
      {"plan_ms", {"Planning", "ms"}},
      {"plan_wait_ms", {"Waited for planning", "ms"}},
      {"data_wait_ms", {"Waited for data", "ms"}},
      {"compute_ms", {"Computing", "ms"}},
      {"update_ms", {"Reducing gradients and optimizer", "ms"}},
      {"transfer_ms", {"Sending", "ms"}},
      {"wait_ms", {"Waiting for other stages", "ms"}},
      {"offload_ms", {"Moving activations and moments to host memory and back", "ms"}},
      {"bubble", {"Bubble (idle share of stage time)", "%", 100}},
      {"imbalance", {"Imbalance of stages", "largest / mean work"}},
      {"nodes", {"Nodes", ""}},
      {"epoch_number", {"Configuration", ""}},
      {"profile_step_ms", {"Step time, predicted by the profile", "ms"}},
      {"calibrated_step_ms", {"Step time, predicted with measured speeds", "ms"}},
      {"imbalance_in_order", {"Imbalance of microbatches, in order", "largest / mean work"}},
      {"imbalance_planned", {"Imbalance of microbatches, balanced", "largest / mean work"}},
      {"exchanged", {"Steps planned with an exchange between encoders", "%", 100}},
      {"deferred_samples", {"Deferred samples", "per step"}},
      {"held_rows", {"Rows held for deferral", ""}},
      {"held_bytes", {"Memory: held for deferral", "MB", 1e-6}},
      {"activation_bytes", {"Memory: activations", "MB", 1e-6}},
      {"promised_activation_bytes", {"Memory: activations promised by the plan", "MB", 1e-6}},
      {"offloaded_bytes", {"Memory: activations and moments in host memory", "MB", 1e-6}},
      {"moved_to_host_bytes", {"Activations moved to host memory", "MB per step", 1e-6}},
      {"activations_over_promise", {"Activations over what the plan promised", "worst device"}},
      {"corrected_shapes", {"Shapes whose predicted times follow measured ones", ""}},
      {"skipped_steps", {"Skipped steps so far", ""}},
      {"bad_samples", {"Bad samples so far", ""}},
      {"checkpoint_stall_ms", {"Waited for checkpoints", "ms"}},
      {"checkpoint_ms", {"Writing a checkpoint", "ms"}},
      {"generation", {"Generation", ""}},
  };
  return words;
}

/// Of each module group (`phases.GROUP.KEY`).
const std::map<std::string, KeyWords>& known_of_phases() {
  static const std::map<std::string, KeyWords> words{
      {"imbalance", {"Imbalance of replicas, measured", "largest / mean work"}},
      {"imbalance_planned", {"Imbalance of replicas, as planned", "largest / mean work"}},
      {"imbalance_drawn", {"Imbalance of replicas, as the samples came", "largest / mean work"}},
      {"imbalance_bound", {"Imbalance of replicas, at least", "largest / mean work"}},
      {"rows_between_nodes", {"Rows to another node", "%", 100}},
      {"rows_between_nodes_bound", {"Rows to another node, at least", "%", 100}},
  };
  return words;
}

}  // namespace

PhaseKey phase_of(const std::string& key) {
  constexpr std::string_view kBegin = "phases.";
  const auto end = key.rfind('.');
  if (!key.starts_with(kBegin) || end < kBegin.size()) return {};
  return {key.substr(kBegin.size(), end - kBegin.size()), key.substr(end + 1)};
}

KeyWords key_words(const std::string& key) {
  if (const auto found = known().find(key); found != known().end()) return found->second;
  if (const auto [group, end] = phase_of(key); !group.empty())
    if (const auto found = known_of_phases().find(end); found != known_of_phases().end()) {
      KeyWords words = found->second;
      words.text = group + ": " + words.text;
      return words;
    }
  KeyWords words{key, ""};
  const auto cut = [&](std::string_view end, const char* unit, double factor) {
    if (!words.unit.empty() || !words.text.ends_with(end) || words.text.size() == end.size())
      return;
    words = {words.text.substr(0, words.text.size() - end.size()), unit, factor};
  };
  cut("_bytes", "MB", 1e-6);
  cut("_ms", "ms", 1);
  cut("_per_s", "per second", 1);
  cut("_s", "s", 1);
  std::replace(words.text.begin(), words.text.end(), '_', ' ');
  auto& first = words.text.front();
  first = static_cast<char>(std::toupper(static_cast<unsigned char>(first)));
  return words;
}

}  // namespace troupe::observe
