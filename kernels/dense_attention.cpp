// Shapes: K kv_heads, G query heads of each, R rows (queries, keys), D head_dim.

#include "kernels/dense_attention.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "kernels/attention_heads.hpp"
#include "kernels/device_copies.hpp"

namespace troupe::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [R, R]: true where the query sees nothing of the key.
at::Tensor hidden_pairs(const TokenMask& mask, at::Device device) {
  auto hidden = at::empty({mask.size(), mask.size()}, at::kBool);
  auto* to = hidden.mutable_data_ptr<bool>();
  for (TokenCount query = 0; query < mask.size(); ++query)
    for (TokenCount key = 0; key < mask.size(); ++key) *to++ = !mask.sees(query, key);
  return to_device(hidden, device);
}

// [R, K G, D] as [K, G, R, D], in the type to compute in.
at::Tensor by_head(const at::Tensor& heads, std::int64_t kv_heads) {
  return heads.to(working_type(heads))
      .unflatten(1, {kv_heads, heads.size(1) / kv_heads})
      .permute({1, 2, 0, 3});
}

// Back to [R, K G, D] and the type of `like`.
at::Tensor by_row(const at::Tensor& heads, const at::Tensor& like) {
  return heads.permute({2, 0, 1, 3}).flatten(1, 2).to(like.scalar_type()).contiguous();
}

// softmax over the last dimension; rows without any score are 0.
at::Tensor masked_softmax(at::Tensor scores, const at::Tensor& hidden) {
  scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  const auto top = scores.amax(-1, /*keepdim=*/true);
  scores.sub_(top.masked_fill(top.isneginf(), 0)).exp_();
  const auto total = scores.sum(-1, /*keepdim=*/true);
  return scores.div_(total.masked_fill(total.eq(0), 1));
}

struct DenseAttention : torch::autograd::Function<DenseAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value,
                            const at::Tensor& hidden, double scale) {
    const auto kv_heads = key.size(1);
    const auto q = by_head(query, kv_heads), k = by_head(key, kv_heads);
    const auto weights = masked_softmax(at::matmul(q, k.transpose(-1, -2)).mul_(scale), hidden);
    context->save_for_backward({query, key, value, weights});
    context->saved_data["scale"] = scale;
    return by_row(at::matmul(weights, by_head(value, kv_heads)), query);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &query = saved[0], &key = saved[1], &value = saved[2], &weights = saved[3];
    const auto scale = context->saved_data["scale"].toDouble();
    const auto kv_heads = key.size(1);
    const auto d_out = by_head(gradients[0], kv_heads);
    const auto d_weights = at::matmul(d_out, by_head(value, kv_heads).transpose(-1, -2));
    // Of a softmax: w * (dw - sum(w dw)).
    const auto pull = weights.mul(d_weights).sum(-1, /*keepdim=*/true);
    const auto d_scores = weights.mul(d_weights.sub(pull)).mul_(scale);
    const auto sum_group = [](const at::Tensor& heads) { return heads.sum(1, /*keepdim=*/true); };
    const auto d_query = at::matmul(d_scores, by_head(key, kv_heads));
    const auto d_key = at::matmul(d_scores.transpose(-1, -2), by_head(query, kv_heads));
    const auto d_value = at::matmul(weights.transpose(-1, -2), d_out);
    return {by_row(d_query, query),
            by_row(sum_group(d_key), key),
            by_row(sum_group(d_value), value),
            {},
            {}};
  }
};

}  // namespace

at::Tensor dense_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const TokenMask& mask) {
  const auto sizes = check_heads(query, key, value, mask.size());
  if (sizes.rows == 0) return at::empty_like(query);
  return DenseAttention::apply(query, key, value, hidden_pairs(mask, query.device()),
                               sizes.scale());
}

}  // namespace troupe::kernels
