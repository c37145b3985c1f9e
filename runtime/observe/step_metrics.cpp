#include "runtime/observe/step_metrics.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>
#include <nlohmann/json.hpp>

namespace troupe::observe {

namespace {

using Json = nlohmann::ordered_json;

std::string one_line(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// 950, 12.3k, 4.56M: three figures.
std::string short_count(double count) {
  if (count < 1e3) return fmt::format("{:.0f}", count);
  if (count < 1e6) return fmt::format("{:.3g}k", count / 1e3);
  return fmt::format("{:.3g}M", count / 1e6);
}

// 45 s, 3:07, 2:05:00.
std::string remaining_time(double seconds_left) {
  const auto seconds = static_cast<std::int64_t>(std::clamp(seconds_left, 0.0, 3.6e6));
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{}:{:02}", seconds / 60, seconds % 60);
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string step_number(std::int64_t step, std::int64_t total_steps) {
  return total_steps > 0 ? fmt::format("{}/{}", step, total_steps) : fmt::format("{}", step);
}

}  // namespace

std::string metrics_line(const StepMetrics& metrics) {
  Json line = {{"step", metrics.step},
               {"loss", metrics.loss},
               {"lr", metrics.lr},
               {"grad_norm", metrics.grad_norm},
               {"samples", metrics.samples},
               {"tokens", metrics.tokens},
               {"trained_tokens", metrics.trained_tokens},
               {"tokens_per_s", metrics.tokens_per_s()},
               {"step_ms", metrics.step_ms},
               {"plan_ms", metrics.plan_ms},
               {"plan_wait_ms", metrics.plan_wait_ms},
               {"bubble", metrics.bubble},
               {"imbalance", metrics.imbalance},
               {"data_wait_ms", metrics.data_wait_ms},
               {"compute_ms", metrics.times.compute_ms},
               {"update_ms", metrics.times.update_ms},
               {"transfer_ms", metrics.times.transfer_ms},
               {"wait_ms", metrics.times.wait_ms},
               {"offload_ms", metrics.times.offload_ms},
               {"nodes", metrics.nodes},
               {"epoch_number", metrics.epoch_number},
               {"profile_step_ms", metrics.profile_step_ms},
               {"calibrated_step_ms", metrics.calibrated_step_ms},
               {"predicted_step_ms", metrics.calibrated_step_ms},
               {"imbalance_in_order", metrics.imbalance_in_order},
               {"imbalance_planned", metrics.imbalance_planned},
               {"deferred_samples", metrics.deferred_samples},
               {"held_rows", metrics.held_rows},
               {"held_bytes", metrics.held_bytes.count()},
               {"activation_bytes", metrics.activation_bytes.count()},
               {"promised_activation_bytes", metrics.promised_activation_bytes.count()},
               {"activations_over_promise", metrics.activations_over_promise},
               {"corrected_shapes", metrics.corrected_shapes},
               {"skipped_steps", metrics.skipped_steps},
               {"bad_samples", metrics.bad_samples},
               {"checkpoint_stall_ms", metrics.checkpoint_stall_ms},
               {"checkpoint_ms", metrics.checkpoint_ms},
               {"generation", metrics.epoch_number}};
  for (const auto& phase : metrics.phases) {
    line["phases"][phase.group] = {
        {"imbalance_drawn", phase.drawn},       {"imbalance_planned", phase.planned},
        {"imbalance_bound", phase.bound},       {"imbalance", phase.measured},
        {"rows_between_nodes", phase.far_rows}, {"rows_between_nodes_bound", phase.far_rows_bound}};
    if (phase.exchanged) line["phases"][phase.group]["exchanged"] = true;
  }
  if (metrics.can_exchange) line["exchanged"] = metrics.exchanged;
  for (const auto& [name, value] : metrics.auxiliary_losses) line["auxiliary_losses"][name] = value;
  // A peak that nobody knows gives no share of it.
  if (metrics.work.flops > 0) line["tflops_per_device"] = metrics.tflops_per_device();
  if (metrics.mfu() > 0) line["mfu"] = metrics.mfu();
  // A step that was discarded moves no moments, which are in host memory all the same.
  if (metrics.offloaded_bytes > Bytes{} || metrics.moved_to_host_bytes > Bytes{}) {
    line["offloaded_bytes"] = metrics.offloaded_bytes.count();
    line["moved_to_host_bytes"] = metrics.moved_to_host_bytes.count();
  }
  if (!metrics.skipped.empty()) line["skipped"] = metrics.skipped;
  return one_line(line);
}

std::string samples_line(std::int64_t step, std::span<const std::string> ids) {
  return one_line({{"step", step}, {"ids", std::vector<std::string>(ids.begin(), ids.end())}});
}

std::string step_line(const StepMetrics& metrics, const StepLineOptions& options) {
  auto line = fmt::format("step {}", step_number(metrics.step, options.total_steps));
  if (options.steps_per_epoch > 0)
    line += fmt::format("  epoch {}", (metrics.step - 1) / options.steps_per_epoch + 1);
  if (!metrics.skipped.empty()) return line + "  skipped: " + metrics.skipped;
  struct Figure {
    std::string text;
    int leaves = 0;  ///< Turn in which it makes room; 0: it stays.
  };
  std::vector<Figure> figures{
      {fmt::format("  loss {:.4f}", metrics.loss)},
      {fmt::format("  lr {:.1e}", metrics.lr), 2},
      {fmt::format("  grad {:.3g}", metrics.grad_norm), 3},
      {fmt::format("  {} tok/s", short_count(metrics.tokens_per_s()))},
      {fmt::format("  {:.0f} ms", metrics.step_ms)},
      {fmt::format("  bubble {:.0f} %", 100 * metrics.bubble), 5},
  };
  if (metrics.work.flops > 0)
    figures.push_back({fmt::format("  tflops {:.3g}", metrics.tflops_per_device()), 4});
  if (metrics.mfu() > 0) figures.push_back({fmt::format("  mfu {:.3g} %", 100 * metrics.mfu()), 6});
  if (options.left_s.value_or(0) > 0)
    figures.push_back({"  eta " + remaining_time(*options.left_s), 1});
  // Waits are silent as long as they stay invisible.
  if (metrics.data_wait_ms >= 1)
    figures.push_back({fmt::format("  data wait {:.0f} ms", metrics.data_wait_ms)});
  if (metrics.plan_wait_ms >= 1)
    figures.push_back({fmt::format("  plan wait {:.0f} ms", metrics.plan_wait_ms)});
  std::size_t length = line.size();
  for (const auto& figure : figures) length += figure.text.size();
  for (int turn = 1; turn <= 6 && options.columns > 0 && length > options.columns; ++turn)
    for (auto& figure : figures)
      if (figure.leaves == turn) length -= std::exchange(figure.text, {}).size();
  for (const auto& figure : figures) line += figure.text;
  return line;
}

std::string progress_bar(std::int64_t step, std::int64_t total_steps, double mean_step_ms,
                         std::int32_t width) {
  const auto done = std::clamp<std::int64_t>(step, 0, total_steps);
  const double left_s = static_cast<double>(total_steps - done) * mean_step_ms / 1000;
  const auto figures = fmt::format("  {}/{}  {:.2f} s/step  {} left", done, total_steps,
                                   mean_step_ms / 1000, remaining_time(left_s));
  const auto columns = std::max(width, 0);
  const auto room =
      std::min<std::int64_t>(columns - static_cast<std::int64_t>(figures.size()) - 2, 40);
  if (room < 5) return figures.substr(2, static_cast<std::size_t>(columns));
  const auto filled = static_cast<std::size_t>(room * done / total_steps);
  return "[" + std::string(filled, '#') +
         std::string(static_cast<std::size_t>(room) - filled, '.') + "]" + figures;
}

}  // namespace troupe::observe
