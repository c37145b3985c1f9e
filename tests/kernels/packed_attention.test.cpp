#include "kernels/packed_attention.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

#include "tests/kernels/gradient_check.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe::kernels;

namespace {

using Segments = std::vector<std::int64_t>;

// The definition: one segment and one head at a time, with a full matrix of scores.
at::Tensor reference(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const Segments& segments, bool causal) {
  const auto group = query.size(1) / key.size(1);
  std::vector<at::Tensor> parts;
  std::int64_t begin = 0;
  for (const auto length : segments) {
    std::vector<at::Tensor> heads;
    for (std::int64_t h = 0; h < query.size(1); ++h) {
      const auto of = [&](const at::Tensor& x, std::int64_t head) {
        return x.narrow(0, begin, length).select(1, head);
      };
      auto scores = of(query, h).mm(of(key, h / group).t()).div(std::sqrt(query.size(2)));
      if (causal)
        scores = scores.masked_fill(at::ones({length, length}, at::kBool).triu(1),
                                    -std::numeric_limits<double>::infinity());
      heads.push_back(at::softmax(scores, -1).mm(of(value, h / group)).unsqueeze(1));
    }
    parts.push_back(at::cat(heads, 1));
    begin += length;
  }
  return at::cat(parts);
}

struct Heads {
  at::Tensor query, key, value;

  Heads(std::int64_t rows, std::int64_t heads, std::int64_t kv_heads, std::int64_t dim)
      : query(leaf({rows, heads, dim}, 1)),
        key(leaf({rows, kv_heads, dim}, 2)),
        value(leaf({rows, kv_heads, dim}, 3)) {}
};

}  // namespace

TEST_CASE("a single row attends to itself", "[kernels]") {
  // By hand: softmax of one score is 1, so the output is the value, for both query heads.
  const Heads x(1, 2, 1, 4);
  const auto out = packed_attention(x.query, x.key, x.value, {1}, true);
  CHECK(out.select(1, 0).equal(x.value.select(1, 0)));
  CHECK(out.select(1, 1).equal(x.value.select(1, 0)));
}

TEST_CASE("six query heads share one, two or three keys at lengths of any kind",
          "[kernels][property]") {
  for (const std::int64_t dim : {32, 64, 128})
    for (const std::int64_t kv_heads : {1, 2, 3})
      for (const std::int64_t length : {57, 128, 144, 256, 283, 512, 1024}) {
        // Long ones with one number of keys and one head size each.
        if (length > 150 && (kv_heads != length % 3 + 1 || (length > 256 && dim != 32))) continue;
        CAPTURE(dim, kv_heads, length);
        const Heads ours(length, 6, kv_heads, dim), theirs(length, 6, kv_heads, dim);
        const auto out = packed_attention(ours.query, ours.key, ours.value, {length}, true);
        const auto expected = reference(theirs.query, theirs.key, theirs.value, {length}, true);
        CHECK(largest_difference(out, expected) < 1e-12);
        const auto probe = values(out.sizes().vec(), 5);
        out.mul(probe).sum().backward();
        expected.mul(probe).sum().backward();
        CHECK(largest_difference(ours.query.grad(), theirs.query.grad()) < 1e-11);
        CHECK(largest_difference(ours.key.grad(), theirs.key.grad()) < 1e-11);
        CHECK(largest_difference(ours.value.grad(), theirs.value.grad()) < 1e-11);
      }
}

TEST_CASE("packed attention is attention within each segment", "[kernels][property]") {
  for (const bool causal : {false, true})
    for (const auto& segments : {Segments{13}, Segments{1, 5, 5, 2, 5, 70}, Segments{140, 1}})
      for (const std::int64_t kv_heads : {1, 2, 4}) {
        std::int64_t rows = 0;
        for (const auto length : segments) rows += length;
        const Heads ours(rows, 4, kv_heads, 8), theirs(rows, 4, kv_heads, 8);
        const auto out = packed_attention(ours.query, ours.key, ours.value, segments, causal);
        const auto expected = reference(theirs.query, theirs.key, theirs.value, segments, causal);
        CHECK(largest_difference(out, expected) < 1e-13);
        const auto probe = values(out.sizes().vec(), 5);
        out.mul(probe).sum().backward();
        expected.mul(probe).sum().backward();
        CHECK(largest_difference(ours.query.grad(), theirs.query.grad()) < 1e-12);
        CHECK(largest_difference(ours.key.grad(), theirs.key.grad()) < 1e-12);
        CHECK(largest_difference(ours.value.grad(), theirs.value.grad()) < 1e-12);
      }
}

TEST_CASE("attention never looks into another segment", "[kernels]") {
  const Heads x(9, 2, 2, 4);
  const auto before = packed_attention(x.query, x.key, x.value, {4, 5}, false);
  const at::NoGradGuard no_grad;
  for (const auto& tensor : {x.query, x.key, x.value}) tensor.narrow(0, 0, 4).fill_(1e3);
  const auto after = packed_attention(x.query, x.key, x.value, {4, 5}, false);
  CHECK(after.narrow(0, 4, 5).equal(before.narrow(0, 4, 5)));
}

TEST_CASE("attention takes strided heads and narrow types", "[kernels]") {
  const auto packed = leaf({12, 3, 2, 8});
  const auto parts = packed.unbind(1);
  const auto out = packed_attention(parts[0], parts[1], parts[2], {7, 5}, true);
  const auto expected = reference(parts[0], parts[1], parts[2], {7, 5}, true);
  CHECK(largest_difference(out, expected) < 1e-13);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto narrow = packed.detach().to(dtype).set_requires_grad(true);
    const auto heads = narrow.unbind(1);
    const auto result = packed_attention(heads[0], heads[1], heads[2], {7, 5}, true);
    CHECK(result.scalar_type() == dtype);
    CHECK(largest_difference(result, expected) < (dtype == at::kFloat ? 1e-5 : 0.02));
    result.sum().backward();
    CHECK(narrow.grad().scalar_type() == dtype);
  }
}

TEST_CASE("attention of no rows is no rows, and wrong lengths are refused", "[kernels][errors]") {
  const Heads none(0, 2, 2, 4), x(5, 2, 2, 4);
  CHECK(packed_attention(none.query, none.key, none.value, {}, true).size(0) == 0);
  CHECK_THROWS_AS(packed_attention(x.query, x.key, x.value, {4}, true), c10::Error);
}
