#include "kernels/gpu_attention.hpp"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <map>
#include <tuple>
#include <utility>

#include "kernels/attention_heads.hpp"
#include "kernels/gpu/attention.hpp"
#include "kernels/gpu/tensors.hpp"
#include "kernels/gpu_tile_lists.hpp"

namespace troupe::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool takes_bf16(const at::Tensor& heads) {
  return gpu_lists_for(heads.scalar_type(), heads.size(2)) == GpuLists::bf16;
}

// As the kernels read them; bf16 heads that tensor cores do not take are computed in fp32.
at::Tensor as_read(const at::Tensor& heads, bool bf16) {
  return bf16 ? gpu::aligned_heads(heads) : as_working(heads);
}

gpu::HeadRows rows_of(const at::Tensor& heads) {
  return {const_cast<void*>(heads.const_data_ptr()), heads.stride(0), heads.stride(1)};
}

// Keeps lists alive between forward and backward: a context holds LibTorch's values alone.
struct ListsHolder : torch::CustomClassHolder {
  explicit ListsHolder(std::shared_ptr<const gpu::TileLists> held) : lists(std::move(held)) {}
  std::shared_ptr<const gpu::TileLists> lists;
};

// Thread blocks that a GPU, which is this thread's, runs at once: asked once for heads of a kind.
// `wanted`: so many in its place, of each kernel.
gpu::Places places_for(const at::Tensor& heads, bool bf16, std::int64_t wanted) {
  if (wanted != kAllPlaces) return {wanted, wanted, wanted};
  using Kind = std::tuple<c10::DeviceIndex, at::ScalarType, std::int64_t>;
  static thread_local std::map<Kind, gpu::Places> known;
  const Kind kind{heads.device().index(), heads.scalar_type(), heads.size(2)};
  if (const auto found = known.find(kind); found != known.end()) return found->second;
  const auto dim = heads.size(2);
  auto places = bf16 ? gpu::places_bf16_backward(dim)
                     : gpu::places_plain(dim, heads.scalar_type() == at::kDouble);
  if (bf16) places.forward = gpu::places_bf16(dim);
  return known.emplace(kind, places).first->second;
}

gpu::Attention describe(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const at::Tensor& log_total, const gpu::TileLists& lists,
                        const gpu::Places& places) {
  const HeadSizes sizes{query.size(0), query.size(1), key.size(1), query.size(2)};
  gpu::Attention result{.rows = sizes.rows,
                        .heads = sizes.heads,
                        .kv_heads = sizes.kv_heads,
                        .dim = sizes.dim,
                        .scale = sizes.scale(),
                        .places = places,
                        .mask = {},
                        .by_query = {},
                        .back_by_query = {},
                        .by_key = {},
                        .query = rows_of(query),
                        .key = rows_of(key),
                        .value = rows_of(value),
                        .log_total = log_total.mutable_data_ptr(),
                        .room = nullptr};
  lists.describe(result);
  return result;
}

struct GpuAttention : torch::autograd::Function<GpuAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value,
                            const std::shared_ptr<const MaskTiles>& tiles, std::int64_t places) {
    const bool bf16 = takes_bf16(query);
    const gpu::Place place(query);
    const auto q = as_read(query, bf16), k = as_read(key, bf16), v = as_read(value, bf16);
    const auto lists = gpu::TileLists::of(tiles, bf16, query.device());
    const auto log_total = at::empty({q.size(1), gpu::padded_rows(q.size(0))},
                                     q.options().dtype(bf16 ? at::kFloat : q.scalar_type()));
    const auto out = at::empty(q.sizes(), q.options());
    auto attention = describe(q, k, v, log_total, *lists, places_for(q, bf16, places));
    const auto partial = at::empty({gpu::forward_room(attention, bf16)}, log_total.options());
    attention.room = partial.mutable_data_ptr();
    if (bf16)
      gpu::attend_bf16(attention, rows_of(out), place.stream);
    else
      gpu::attend_plain(attention, rows_of(out), q.scalar_type() == at::kDouble, place.stream);
    const auto result = out.to(query.scalar_type());
    context->save_for_backward({query, key, value, result, log_total});
    context->saved_data["lists"] =
        at::IValue::make_capsule(c10::make_intrusive<ListsHolder>(lists));
    context->saved_data["places"] = places;
    return result;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto holder = context->saved_data["lists"].toCapsule();
    const auto& lists = *static_cast<const ListsHolder&>(*holder).lists;
    const bool bf16 = takes_bf16(saved[0]);
    const gpu::Place place(saved[0]);
    const auto q = as_read(saved[0], bf16), k = as_read(saved[1], bf16),
               v = as_read(saved[2], bf16), out = as_read(saved[3], bf16),
               d_out = as_read(gradients[0], bf16);
    const auto& log_total = saved[4];
    const auto room = [](const at::Tensor& like) {
      return at::empty(like.sizes(), like.options());
    };
    const auto d_query = room(q), d_key = room(k), d_value = room(v), pull = room(log_total);
    const auto attention = describe(q, k, v, log_total, lists,
                                    places_for(q, bf16, context->saved_data["places"].toInt()));
    const auto partial = at::empty({gpu::backward_room(attention, bf16)}, log_total.options());
    const gpu::AttentionGradients to{
        rows_of(d_out), rows_of(out),     pull.mutable_data_ptr(),   rows_of(d_query),
        rows_of(d_key), rows_of(d_value), partial.mutable_data_ptr()};
    if (bf16)
      gpu::attend_bf16_backward(attention, to, place.stream);
    else
      gpu::attend_plain_backward(attention, to, q.scalar_type() == at::kDouble, place.stream);
    const auto type = gradients[0].scalar_type();
    return {d_query.to(type), d_key.to(type), d_value.to(type), {}, {}};
  }
};

}  // namespace

bool has_gpu_attention(const at::Tensor& query) {
  return gpu::takes(query) && gpu_lists_for(query.scalar_type(), query.size(2)) != GpuLists::none;
}

at::Tensor gpu_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::shared_ptr<const MaskTiles>& tiles, std::int64_t places) {
  // A grid's second dimension counts blocks of queries.
  constexpr std::int64_t kRowsMax = 65535 * gpu::kPlainTile;
  TORCH_CHECK_VALUE(query.size(0) <= kRowsMax, "attention on a GPU takes at most ", kRowsMax,
                    " rows, found ", query.size(0));
  return GpuAttention::apply(query, key, value, tiles, places);
}

}  // namespace troupe::kernels
