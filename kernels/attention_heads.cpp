#include "kernels/attention_heads.hpp"

#include <cmath>

namespace troupe::kernels {

double HeadSizes::scale() const { return 1 / std::sqrt(static_cast<double>(dim)); }

HeadSizes check_heads(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                      std::int64_t rows) {
  TORCH_CHECK_VALUE(query.dim() == 3 && key.dim() == 3 && value.dim() == 3,
                    "attention takes [rows, heads, head_dim], found query ", query.sizes(),
                    ", key ", key.sizes(), " and value ", value.sizes());
  TORCH_CHECK_VALUE(key.sizes() == value.sizes(), "keys ", key.sizes(), " and values ",
                    value.sizes(), " must have the same shape");
  TORCH_CHECK_VALUE(query.size(0) == rows && key.size(0) == rows, "the mask holds ", rows,
                    " rows, the query has ", query.size(0), " and the key ", key.size(0));
  TORCH_CHECK_VALUE(query.size(2) == key.size(2) && query.size(2) > 0,
                    "head sizes must be equal and above 0, found ", query.size(2), " and ",
                    key.size(2));
  TORCH_CHECK_VALUE(key.size(1) > 0 && query.size(1) > 0 && query.size(1) % key.size(1) == 0,
                    query.size(1), " query heads cannot share ", key.size(1), " key heads evenly");
  const auto type = query.scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kBFloat16 || type == at::kDouble,
                    "attention takes fp32, bf16 and fp64, found ", type);
  TORCH_CHECK_VALUE(key.scalar_type() == type && value.scalar_type() == type, "the query is ", type,
                    ", key and value are ", key.scalar_type(), " and ", value.scalar_type());
  TORCH_CHECK_VALUE(key.device() == query.device() && value.device() == query.device(),
                    "query, key and value are on ", query.device(), ", ", key.device(), " and ",
                    value.device());
  return {rows, query.size(1), key.size(1), query.size(2)};
}

at::Tensor as_working(const at::Tensor& heads) {
  const auto working = heads.to(working_type(heads));
  return working.stride(2) == 1 ? working : working.contiguous();
}

}  // namespace troupe::kernels
