// Test helpers of attention under a mask: heads, and gradients of a fixed loss.

#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "tests/kernels/gradient_check.hpp"
#include "tests/kernels/random_mask.hpp"

namespace troupe::kernels {

/// While alive, LibTorch works with so many threads.
class UseThreads {
 public:
  explicit UseThreads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~UseThreads() { at::set_num_threads(before_); }
  UseThreads(const UseThreads&) = delete;
  UseThreads& operator=(const UseThreads&) = delete;

 private:
  int before_;
};

struct Heads {
  at::Tensor query, key, value;

  Heads(std::int64_t rows, std::int64_t heads, std::int64_t kv_heads, std::int64_t dim,
        at::ScalarType type = at::kDouble)
      : query(leaf({rows, heads, dim}, 1).detach().to(type).set_requires_grad(true)),
        key(leaf({rows, kv_heads, dim}, 2).detach().to(type).set_requires_grad(true)),
        value(leaf({rows, kv_heads, dim}, 3).detach().to(type).set_requires_grad(true)) {}
};

/// An output, and the gradients of query, key and value of sum(output * a fixed probe).
struct Outcome {
  at::Tensor out, d_query, d_key, d_value;
};

template <class Attention>
Outcome outcome_of(Heads heads, Attention attention) {
  const auto out = attention(heads.query, heads.key, heads.value);
  out.mul(values(out.sizes().vec(), 5).to(out.scalar_type())).sum().backward();
  return {out.detach(), heads.query.grad(), heads.key.grad(), heads.value.grad()};
}

inline double largest_difference(const Outcome& a, const Outcome& b) {
  return std::max({largest_difference(a.out, b.out), largest_difference(a.d_query, b.d_query),
                   largest_difference(a.d_key, b.d_key), largest_difference(a.d_value, b.d_value)});
}

inline bool same_bits(const Outcome& a, const Outcome& b) {
  return a.out.equal(b.out) && a.d_query.equal(b.d_query) && a.d_key.equal(b.d_key) &&
         a.d_value.equal(b.d_value);
}

}  // namespace troupe::kernels
