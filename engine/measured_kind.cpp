#include "engine/measured_kind.hpp"

#include <ATen/Parallel.h>
#include <time.h>

#include <algorithm>

namespace troupe::engine {

std::optional<AttentionShape> attention_of(const JobSetup& setup, const LayerKind& kind) {
  if (!kind.name.ends_with(".block")) return std::nullopt;
  const auto& module = config_of(setup, kind.example.module);
  if (const auto* c = std::get_if<VisionConfig>(&module.config))
    return AttentionShape{c->num_heads, c->num_heads, c->embed_dim / c->num_heads, false};
  if (const auto* c = std::get_if<AudioConfig>(&module.config))
    return AttentionShape{c->encoder_attention_heads, c->encoder_attention_heads,
                          c->d_model / c->encoder_attention_heads, false};
  const auto& c = std::get<LlmConfig>(module.config);
  return AttentionShape{c.num_attention_heads, c.num_key_value_heads,
                        c.head_dim > 0 ? c.head_dim : c.hidden_size / c.num_attention_heads, true};
}

double operator_clock_ms() {
  timespec time{};
  clock_gettime(at::get_num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

void MeasuredRuns::add(const scheduler::PartCost& cost) {
  forward_.push_back(cost.forward_ms);
  input_grad_.push_back(cost.input_grad_ms);
  weight_grad_.push_back(cost.weight_grad_ms);
  spent_ms_ += cost.forward_ms + cost.input_grad_ms + cost.weight_grad_ms;
}

scheduler::PartCost MeasuredRuns::medians() const {
  const auto median = [](std::vector<double> values) {
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  };
  return {median(forward_), median(input_grad_), median(weight_grad_), 0};
}

}  // namespace troupe::engine
