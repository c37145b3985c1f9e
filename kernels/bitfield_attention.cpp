#include "kernels/bitfield_attention.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "kernels/attention_heads.hpp"
#include "kernels/blocked_attention.hpp"
#include "kernels/dense_attention.hpp"
#include "kernels/gpu_attention.hpp"

namespace troupe::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Keeps tiles alive between forward and backward: a context holds LibTorch's values alone.
struct TilesHolder : torch::CustomClassHolder {
  explicit TilesHolder(std::shared_ptr<const MaskTiles> held) : tiles(std::move(held)) {}
  std::shared_ptr<const MaskTiles> tiles;
};

template <class T>
cpu::HeadRows<const T> read_rows(const at::Tensor& heads) {
  return {heads.const_data_ptr<T>(), heads.stride(0), heads.stride(1)};
}
template <class T>
cpu::HeadRows<T> write_rows(const at::Tensor& heads) {
  return {heads.mutable_data_ptr<T>(), heads.stride(0), heads.stride(1)};
}

// Tensors of one attention, all in the type to compute in.
struct Working {
  at::Tensor query, key, value, log_total;

  template <class T>
  cpu::BlockedAttention<T> attention(const MaskTiles& tiles) const {
    return {{query.size(0), query.size(1), key.size(1), query.size(2)},
            &tiles,
            read_rows<T>(query),
            read_rows<T>(key),
            read_rows<T>(value),
            log_total.mutable_data_ptr<T>()};
  }
};

// Calls `function` with a T, the type to compute in.
template <class Function>
void in_type(const at::Tensor& working, Function function) {
  working.scalar_type() == at::kDouble ? function(double{}) : function(float{});
}

struct BitfieldAttention : torch::autograd::Function<BitfieldAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value,
                            const std::shared_ptr<const MaskTiles>& tiles) {
    const Working x{
        as_working(query), as_working(key), as_working(value),
        at::empty({query.size(1), query.size(0)}, query.options().dtype(working_type(query)))};
    auto out = at::empty(query.sizes(), x.log_total.options());
    in_type(out, [&](auto zero) {
      using T = decltype(zero);
      cpu::attend_forward(x.attention<T>(*tiles), write_rows<T>(out));
    });
    out = out.to(query.scalar_type());
    context->save_for_backward({query, key, value, out, x.log_total});
    context->saved_data["tiles"] =
        at::IValue::make_capsule(c10::make_intrusive<TilesHolder>(tiles));
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto holder = context->saved_data["tiles"].toCapsule();
    const auto& tiles = *static_cast<const TilesHolder&>(*holder).tiles;
    const Working x{as_working(saved[0]), as_working(saved[1]), as_working(saved[2]), saved[4]};
    const auto d_out = as_working(gradients[0]);
    const auto pull = d_out.mul(as_working(saved[3])).sum(-1).t().contiguous();
    auto d_query = at::empty(x.query.sizes(), x.log_total.options());
    auto d_key = at::empty_like(d_query), d_value = at::empty_like(d_query);
    in_type(pull, [&](auto zero) {
      using T = decltype(zero);
      cpu::attend_backward<T>(x.attention<T>(tiles), {read_rows<T>(d_out), pull.const_data_ptr<T>(),
                                                      write_rows<T>(d_query), write_rows<T>(d_key),
                                                      write_rows<T>(d_value)});
    });
    const auto group = x.query.size(1) / x.key.size(1);
    const auto sum_group = [&](const at::Tensor& heads) {
      return group == 1 ? heads : heads.unflatten(1, {x.key.size(1), group}).sum(2);
    };
    const auto type = gradients[0].scalar_type();
    return {d_query.to(type), sum_group(d_key).to(type), sum_group(d_value).to(type), {}};
  }
};

}  // namespace

at::Tensor bitfield_attention(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, std::shared_ptr<const MaskTiles> tiles) {
  const auto sizes = check_heads(query, key, value, tiles->mask().size());
  const auto shape = tiles->shape();
  TORCH_CHECK_VALUE(cpu::fits_loops(shape),
                    "blocks must be a multiple of 8 and tiles of 16, found ", shape.block, " and ",
                    shape.tile);
  if (sizes.rows == 0) return at::empty_like(query);
  if (has_gpu_attention(query)) return gpu_attention(query, key, value, tiles);
  if (!query.is_cpu()) return dense_attention(query, key, value, tiles->mask());
  return BitfieldAttention::apply(query, key, value, tiles);
}

}  // namespace troupe::kernels
