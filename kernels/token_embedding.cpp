#include "kernels/token_embedding.hpp"

#include <ATen/ops/_unique.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>

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

/// Whether a table's gradient is summed in fp32, over the tokens that occur: in its own type the
/// rows of a token that occurs hundreds of times would no longer add up.
bool is_narrow(const at::Tensor& weight) { return weight.element_size() < 4; }

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
    at::Tensor places = text_ids, occurring;  // Of ids among those that occur, in rising order.
    if (is_narrow(weight) && weight.requires_grad()) {
      std::tie(occurring, places) = at::_unique(text_ids, /*sorted=*/true, /*return_inverse=*/true);
      occurring = to_device(occurring, weight.device());
    }
    places = to_device(places, weight.device());
    context->save_for_backward({places, occurring, text_positions, positions});
    context->saved_data["vocabulary"] = weight.size(0);
    text_ids = occurring.defined() ? to_device(text_ids, weight.device()) : places;
    auto text = weight.index_select(0, text_ids);
    if (!given) return text;
    auto out = at::empty({ids.size(0), weight.size(1)}, weight.options());
    out.index_copy_(0, text_positions, text);
    out.index_copy_(0, positions, media->to(weight.scalar_type()));
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &text_positions = saved[2], &positions = saved[3];
    const auto& gradient = gradients[0];
    variable_list results(4);
    if (context->needs_input_grad(1))
      results[1] =
          of_table(positions.defined() ? gradient.index_select(0, text_positions) : gradient,
                   saved[0], saved[1], context->saved_data["vocabulary"].toInt());
    if (positions.defined() && context->needs_input_grad(3))
      results[3] = gradient.index_select(0, positions);
    return results;
  }

  static at::Tensor of_table(const at::Tensor& rows, const at::Tensor& places,
                             const at::Tensor& occurring, std::int64_t vocabulary) {
    const auto summed = [&](const at::Tensor& values, std::int64_t count) {
      return at::embedding_dense_backward(values, places, count, /*padding_idx=*/-1,
                                          /*scale_grad_by_freq=*/false);
    };
    if (!occurring.defined()) return summed(rows, vocabulary);
    auto table = at::zeros({vocabulary, rows.size(1)}, rows.options());
    table.index_copy_(0, occurring,
                      summed(rows.to(at::kFloat), occurring.size(0)).to(rows.scalar_type()));
    return table;
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
