#include "kernels/packed_attention.hpp"

#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>

#include "kernels/device_copies.hpp"
#include "kernels/gpu/tensors.hpp"

namespace troupe::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [rows, heads, dim] of one segment as the [kv_heads, group, rows, dim] that attention kernels
// take. Keys and values are expanded over the group without a copy.
at::Tensor as_batch(const at::Tensor& heads, std::int64_t begin, std::int64_t length,
                    std::int64_t kv_heads, std::int64_t group) {
  const auto segment = heads.narrow(0, begin, length);
  const auto dim = heads.size(2);
  if (heads.size(1) == kv_heads * group)
    return segment.view({length, kv_heads, group, dim}).permute({1, 2, 0, 3});
  return segment.unsqueeze(2).expand({length, kv_heads, group, dim}).permute({1, 2, 0, 3});
}

// One autograd node for the whole pack: the CPU's fused kernel per segment, fed with strided views,
// writing into one output.
struct CpuAttention : torch::autograd::Function<CpuAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value,
                            const std::vector<std::int64_t>& segments, bool causal) {
    const auto kv_heads = key.size(1), group = query.size(1) / kv_heads;
    auto out = at::empty(query.sizes(), query.options());
    variable_list saved{query, key, value, out};
    std::int64_t begin = 0;
    for (const auto length : segments) {
      auto [result, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
          as_batch(query, begin, length, kv_heads, group),
          as_batch(key, begin, length, kv_heads, group),
          as_batch(value, begin, length, kv_heads, group), /*dropout_p=*/0, causal);
      as_batch(out, begin, length, kv_heads, group).copy_(result);
      saved.push_back(log_sum);
      begin += length;
    }
    context->save_for_backward(std::move(saved));
    context->saved_data["segments"] = segments;
    context->saved_data["causal"] = causal;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &query = saved[0], &key = saved[1], &value = saved[2], &out = saved[3];
    const auto segments = context->saved_data["segments"].toIntVector();
    const bool causal = context->saved_data["causal"].toBool();
    const auto kv_heads = key.size(1), group = query.size(1) / kv_heads;
    const auto gradient = gradients[0].contiguous();
    auto d_query = at::empty(query.sizes(), query.options());
    auto d_key = at::empty(key.sizes(), key.options());
    auto d_value = at::empty(value.sizes(), value.options());
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < segments.size(); begin += segments[i++]) {
      const auto batch = [&](const at::Tensor& heads) {
        return as_batch(heads, begin, segments[i], kv_heads, group);
      };
      const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          batch(gradient), batch(query), batch(key), batch(value), batch(out), saved[4 + i],
          /*dropout_p=*/0, causal);
      batch(d_query).copy_(dq);
      const auto sum_group = [&](const at::Tensor& expanded, const at::Tensor& to) {
        to.narrow(0, begin, segments[i]).copy_(expanded.sum(1).transpose(0, 1));
      };
      sum_group(dk, d_key);
      sum_group(dv, d_value);
    }
    return {d_query, d_key, d_value, {}, {}};
  }
};

// FlashAttention takes a whole pack in one launch; its backward is deterministic where LibTorch is
// told to be.
bool has_flash(const at::Tensor& query) {
  return gpu::takes(query) && query.scalar_type() == at::kBFloat16 && query.size(2) % 8 == 0 &&
         query.size(2) <= 256;
}

// Where segments begin, and where the last ends: int32 on the device. The layers of a microbatch
// ask for the same.
const at::Tensor& starts_of(const std::vector<std::int64_t>& segments, at::Device device) {
  struct Last {
    std::vector<std::int64_t> segments;
    at::Tensor starts;
  };
  static thread_local Last last;
  if (!last.starts.defined() || last.segments != segments || last.starts.device() != device) {
    std::vector<std::int32_t> starts{0};
    for (const auto length : segments)
      starts.push_back(starts.back() + static_cast<std::int32_t>(length));
    last = {segments, to_device(at::tensor(starts, at::kInt), device)};
  }
  return last.starts;
}

at::Tensor attend_pack(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const std::vector<std::int64_t>& segments, bool causal) {
  const auto starts = starts_of(segments, query.device());
  const auto longest = *std::max_element(segments.begin(), segments.end());
  return std::get<0>(at::_flash_attention_forward(
      gpu::aligned_heads(query), gpu::aligned_heads(key), gpu::aligned_heads(value), starts, starts,
      longest, longest, /*dropout_p=*/0, causal,
      /*return_debug_mask=*/false));
}

at::Tensor attend_by_segment(const at::Tensor& query, const at::Tensor& key,
                             const at::Tensor& value, const std::vector<std::int64_t>& segments,
                             bool causal) {
  const auto kv_heads = key.size(1), group = query.size(1) / kv_heads;
  std::vector<at::Tensor> parts;
  std::int64_t begin = 0;
  for (const auto length : segments) {
    const auto batch = [&](const at::Tensor& heads) {
      return as_batch(heads, begin, length, kv_heads, group);
    };
    const auto result =
        at::scaled_dot_product_attention(batch(query), batch(key), batch(value), {}, 0.0, causal);
    parts.push_back(result.permute({2, 0, 1, 3}).reshape({length, query.size(1), query.size(2)}));
    begin += length;
  }
  return at::cat(parts);
}

}  // namespace

at::Tensor packed_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const std::vector<std::int64_t>& segments, bool causal) {
  std::int64_t total = 0;
  for (const auto length : segments) total += length;
  TORCH_CHECK_VALUE(total == query.size(0), "segments hold ", total, " rows, the query has ",
                    query.size(0));
  if (total == 0) return at::empty_like(query);
  if (query.is_cpu()) return CpuAttention::apply(query, key, value, segments, causal);
  if (has_flash(query)) return attend_pack(query, key, value, segments, causal);
  return attend_by_segment(query, key, value, segments, causal);
}

}  // namespace troupe::kernels
