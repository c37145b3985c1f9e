#include "kernels/token_embedding.hpp"

#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/device_copies.hpp"

namespace troupe::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_range(const at::Tensor& index, std::int64_t end, const char* what) {
  if (index.numel() == 0) return;
  const auto least = index.min().item<std::int64_t>(), most = index.max().item<std::int64_t>();
  TORCH_CHECK_INDEX(least >= 0 && most < end, what, " ", least < 0 ? least : most,
                    " is out of range; there are ", end);
}

// Takes the text ids and positions apart first, so that ids at media positions are never read.
struct Embed : torch::autograd::Function<Embed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& ids,
                            const at::Tensor& weight, const std::optional<at::Tensor>& given,
                            const std::optional<at::Tensor>& media) {
    auto text_ids = ids;
    at::Tensor positions, text_positions;
    if (given) {
      check_range(*given, ids.size(0), "media position");
      auto is_text = at::ones({ids.size(0)}, ids.options().dtype(at::kBool));
      is_text.index_fill_(0, *given, false);
      text_positions = is_text.nonzero().squeeze(1);
      text_ids = ids.index_select(0, text_positions);
      text_positions = to_device(text_positions, weight.device());
      positions = to_device(*given, weight.device());
    }
    check_range(text_ids, weight.size(0), "token id");
    text_ids = to_device(text_ids, weight.device());
    context->save_for_backward({text_ids, text_positions, positions});
    context->saved_data["vocabulary"] = weight.size(0);
    auto text = weight.index_select(0, text_ids);
    if (!given) return text;
    auto out = at::empty({ids.size(0), weight.size(1)}, weight.options());
    out.index_copy_(0, text_positions, text);
    out.index_copy_(0, positions, media->to(weight.scalar_type()));
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &text_ids = saved[0], &text_positions = saved[1], &positions = saved[2];
    const auto& gradient = gradients[0];
    variable_list results(4);
    if (context->needs_input_grad(1))
      results[1] = at::embedding_dense_backward(
          positions.defined() ? gradient.index_select(0, text_positions) : gradient, text_ids,
          context->saved_data["vocabulary"].toInt(), /*padding_idx=*/-1,
          /*scale_grad_by_freq=*/false);
    if (positions.defined() && context->needs_input_grad(3))
      results[3] = gradient.index_select(0, positions);
    return results;
  }
};

}  // namespace

at::Tensor embed_tokens(const at::Tensor& ids, const at::Tensor& weight,
                        const at::Tensor& positions, const at::Tensor& media) {
  // Autograd does not take undefined tensors as arguments.
  if (!positions.defined()) return Embed::apply(ids, weight, std::nullopt, std::nullopt);
  return Embed::apply(ids, weight, std::optional(positions), std::optional(media));
}

}  // namespace troupe::kernels
