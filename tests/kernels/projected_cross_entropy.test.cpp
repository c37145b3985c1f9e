#include "kernels/projected_cross_entropy.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cross_entropy.hpp"
#include "kernels/deferred_gradients.hpp"
#include "kernels/linear.hpp"
#include "tests/kernels/a_gpu.hpp"
#include "tests/kernels/gradient_check.hpp"
#include "tests/kernels/peak_memory.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe;
using namespace troupe::kernels;

namespace {

/// So many rows or columns at a time, whatever their width.
LogitChunks by(std::int64_t at_once) { return {1, at_once}; }

/// A head on rows that predict something.
struct Case {
  at::Tensor rows, weight, targets;
  std::vector<std::int64_t> counts;

  Case(std::int64_t row_count, std::int64_t width, std::int64_t vocabulary,
       at::ScalarType type = at::kDouble)
      : rows(values({row_count, width}, 1).mul(2).to(type).set_requires_grad(true)),
        weight(values({vocabulary, width}, 2).mul(2).to(type).set_requires_grad(true)),
        targets(at::arange(row_count, at::kLong).mul(7919).remainder(vocabulary)),
        // The second sample has no target.
        counts{row_count / 3, 0, row_count - row_count / 3} {}

  Case on(at::Device device) const {
    Case made = *this;
    made.rows = rows.detach().to(device).set_requires_grad(true);
    made.weight = weight.detach().to(device).set_requires_grad(true);
    made.targets = targets.to(device);
    return made;
  }

  at::Tensor chunked(const LogitChunks& chunks) const {
    return projected_cross_entropy(rows, weight, targets, counts, chunks);
  }
  at::Tensor whole() const {
    return cross_entropy_sums(kernels::linear(rows, weight), targets, counts);
  }
  /// Samples do not count alike.
  at::Tensor d_sums(const at::Tensor& sums) const {
    return at::arange(1, 4, sums.options()).mul(0.3);
  }
};

/// Sums and gradients of rows and weights.
struct Found {
  at::Tensor sums, d_rows, d_weight;

  bool operator==(const Found& other) const {
    return sums.equal(other.sums) && d_rows.equal(other.d_rows) && d_weight.equal(other.d_weight);
  }
};

template <class Function>
Found found(const Case& given, Function function, bool split = false) {
  given.rows.mutable_grad() = at::Tensor();
  given.weight.mutable_grad() = at::Tensor();
  const at::Tensor sums = function();
  const auto queue = std::make_shared<DeferredGradients>();
  if (split) {
    const DeferWeightGradients guard(queue);
    sums.backward(given.d_sums(sums));
    CHECK(given.rows.grad().defined());
    CHECK_FALSE(given.weight.grad().defined());
    CHECK(queue->size() == 1);
  } else {
    sums.backward(given.d_sums(sums));
  }
  queue->run();
  return {sums.detach(), given.rows.grad(), given.weight.grad()};
}

double apart(const Found& a, const Found& b) {
  return std::max({largest_difference(a.sums, b.sums), largest_difference(a.d_rows, b.d_rows),
                   largest_difference(a.d_weight, b.d_weight)});
}

}  // namespace

TEST_CASE("a head in chunks has the loss and the gradients that follow from the definition",
          "[kernels]") {
  // By hand: weights of 0 make both of two tokens equally likely. Each row costs ln 2; the gradient
  // of its logits is 1/2 and -1/2, that of its target being the latter, and so of the first weight
  // (rows 3 and 7 have target 0, row 5 target 1) -3/2 + 5/2 - 7/2 = -5/2; of the second 5/2.
  const auto rows =
      at::tensor({3.0, 5.0, 7.0}).to(at::kDouble).view({3, 1}).set_requires_grad(true);
  const auto weight = at::zeros({2, 1}, at::kDouble).set_requires_grad(true);
  const auto sums =
      projected_cross_entropy(rows, weight, at::tensor({0, 1, 0}, at::kLong), {1, 0, 2}, by(1));
  CHECK(std::abs(sums[0].item<double>() - std::log(2.0)) < 1e-15);
  CHECK(sums[1].item<double>() == 0);
  CHECK(std::abs(sums[2].item<double>() - 2 * std::log(2.0)) < 1e-15);
  sums.sum().backward();
  CHECK(std::abs(weight.grad()[0].item<double>() + 2.5) < 1e-15);
  CHECK(std::abs(weight.grad()[1].item<double>() - 2.5) < 1e-15);
  CHECK(rows.grad().abs().sum().item<double>() == 0);
}

TEST_CASE("chunks of any size give what whole logits give", "[kernels][property]") {
  // Rows and columns in one chunk, in chunks that they fill, and in ones with a row or column over
  // or missing.
  for (const std::int64_t row_count : {1, 2, 5, 6, 7, 12, 13})
    for (const std::int64_t at_once : {1, 3, 6, 7, 11, 12}) {
      CAPTURE(row_count, at_once);
      const Case given(row_count, 5, 13);
      const auto wanted = found(given, [&] {
        const auto logits = at::mm(given.rows, given.weight.t());
        const auto losses = at::cross_entropy_loss(logits, given.targets, {}, /*reduction=*/0);
        const auto first = given.counts[0];
        return at::stack({losses.narrow(0, 0, first).sum(), losses.narrow(0, 0, 0).sum(),
                          losses.narrow(0, first, row_count - first).sum()});
      });
      const auto in_chunks = found(given, [&] { return given.chunked(by(at_once)); });
      CHECK(apart(in_chunks, wanted) < 1e-13);
      CHECK(in_chunks == found(given, [&] { return given.chunked(by(at_once)); }));
    }
}

TEST_CASE("a head in chunks has the derivatives of its definition", "[kernels][property]") {
  const Case given(7, 3, 5);
  CHECK(gradient_error([&] { return given.chunked(by(2)); }, {given.rows, given.weight}) < 1e-8);
}

TEST_CASE("a head in one chunk is a product and its loss, to the bit", "[kernels]") {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const Case given(12, 5, 13, type);
    CHECK(found(given, [&] { return given.chunked(by(12)); }) ==
          found(given, [&] { return given.whole(); }));
  }
}

TEST_CASE("a split backward of a head in chunks has the bits of a whole one", "[kernels]") {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const Case given(12, 5, 13, type);
    const auto run = [&] { return given.chunked(by(5)); };
    CHECK(found(given, run) == found(given, run, /*split=*/true));
  }
}

TEST_CASE("a second backward adds to the gradients of a head in chunks", "[kernels]") {
  // As a tied matrix that another layer of the stage uses too, and the next microbatch do.
  const Case given(12, 5, 13);
  const auto once = found(given, [&] { return given.chunked(by(5)); });
  const auto queue = std::make_shared<DeferredGradients>();
  {
    const DeferWeightGradients guard(queue);
    const auto sums = given.chunked(by(5));
    sums.backward(given.d_sums(sums));
  }
  queue->run();
  const auto twice = given.weight.grad();
  CHECK(twice.data_ptr() == once.d_weight.data_ptr());
  const auto again = found(given, [&] { return given.chunked(by(5)); });
  CHECK(twice.equal(again.d_weight.mul(2)));
}

TEST_CASE("weights that are no leaf get their gradients at once", "[kernels]") {
  const Case given(12, 5, 13);
  const auto queue = std::make_shared<DeferredGradients>();
  const DeferWeightGradients guard(queue);
  const auto doubled = given.weight.mul(2);
  projected_cross_entropy(given.rows, doubled, given.targets, given.counts, by(5)).sum().backward();
  CHECK(queue->empty());
  CHECK(given.weight.grad().defined());
}

TEST_CASE("a head in chunks is as exact as one of whole logits in every type", "[kernels]") {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    CAPTURE(type);
    const Case given(40, 64, 200, type);
    Case exact = given;
    exact.rows = given.rows.detach().to(at::kDouble).set_requires_grad(true);
    exact.weight = given.weight.detach().to(at::kDouble).set_requires_grad(true);
    const auto wanted = found(exact, [&] { return exact.whole(); });
    const auto whole = found(given, [&] { return given.whole(); });
    const auto chunked = found(given, [&] { return given.chunked(by(9)); });
    CHECK(chunked.sums.scalar_type() == at::kFloat);
    CHECK(chunked.d_rows.scalar_type() == type);
    CHECK(chunked.d_weight.scalar_type() == type);
    // Gradients of rows are rounded once more.
    const auto error = [&](at::Tensor Found::*part) {
      return std::pair{relative_difference(chunked.*part, wanted.*part),
                       relative_difference(whole.*part, wanted.*part)};
    };
    const double most = type == at::kFloat ? 2e-6 : 2e-2;
    for (const auto part : {&Found::sums, &Found::d_rows, &Found::d_weight}) {
      const auto [own, of_whole] = error(part);
      CAPTURE(own, of_whole);
      CHECK(own < most);
      CHECK(own < 1.5 * of_whole + 1e-7);
    }
  }
}

TEST_CASE("logits far from zero lose nothing in chunks", "[kernels]") {
  // All logits of a row are moved by 1000 times its last element.
  const Case given(12, 5, 13);
  const at::NoGradGuard no_grad;
  given.weight.select(1, 4).fill_(1000);
  given.rows.select(1, 4).fill_(1);
  const at::AutoGradMode grad(true);
  CHECK(apart(found(given, [&] { return given.chunked(by(5)); }),
              found(given, [&] { return given.whole(); })) < 1e-10);
}

TEST_CASE("a frozen head hands gradients through and computes none of its own", "[kernels]") {
  const Case given(12, 5, 13);
  const auto wanted = found(given, [&] { return given.chunked(by(5)); });
  const auto frozen = given.weight.detach();
  const auto queue = std::make_shared<DeferredGradients>();
  given.rows.mutable_grad() = at::Tensor();
  {
    const DeferWeightGradients guard(queue);
    const auto sums =
        projected_cross_entropy(given.rows, frozen, given.targets, given.counts, by(5));
    sums.backward(given.d_sums(sums));
  }
  CHECK(queue->empty());
  CHECK(given.rows.grad().equal(wanted.d_rows));
  const auto nothing =
      projected_cross_entropy(given.rows.detach(), frozen, given.targets, given.counts, by(5));
  CHECK_FALSE(nothing.requires_grad());
  CHECK(nothing.equal(wanted.sums));
}

TEST_CASE("a head that alone trains has the same gradients", "[kernels]") {
  const Case given(12, 5, 13);
  const auto wanted = found(given, [&] { return given.chunked(by(5)); });
  given.weight.mutable_grad() = at::Tensor();
  const auto sums = projected_cross_entropy(given.rows.detach(), given.weight, given.targets,
                                            given.counts, by(5));
  sums.backward(given.d_sums(sums));
  CHECK(given.weight.grad().equal(wanted.d_weight));
}

TEST_CASE("a head without targets has a loss and gradients of zero", "[kernels]") {
  const Case given(0, 5, 13);
  const auto nothing = found(given, [&] { return given.chunked({}); });
  CHECK(nothing.sums.equal(at::zeros({3}, at::kDouble)));
  CHECK(nothing.d_rows.size(0) == 0);
  CHECK(nothing.d_weight.equal(at::zeros({13, 5}, at::kDouble)));
}

TEST_CASE("neither pass of a head in chunks holds logits of all rows", "[kernels]") {
  // 300 rows x 2000 tokens: 4.8 MB of logits. In chunks of 64 KiB, with rows and weights of 8
  // columns: 19 kB and 128 kB.
  const LogitChunks chunks{64 << 10, 1};
  const Case given(300, 8, 2000);
  const std::int64_t logits = 300 * 2000 * 8, rows = 300 * 8 * 8, weights = 2000 * 8 * 8;
  REQUIRE(chunks.at_once(2000, 8) * 2000 * 8 <= chunks.bytes);
  given.weight.mutable_grad() = at::zeros_like(given.weight);
  at::Tensor sums;
  std::int64_t kept = 0;
  const auto queue = std::make_shared<DeferredGradients>();
  {
    const PeakMemory memory;
    sums = given.chunked(chunks);
    kept = memory.held();
    // The input gradient, a loss and a log of a sum for each row.
    CHECK(kept < rows + 4 * 300 * 8 + 1000);
    CHECK(memory.largest() <= chunks.bytes);
    CHECK(memory.peak() < kept + 3 * chunks.bytes);
  }
  {
    const PeakMemory memory;
    const DeferWeightGradients guard(queue);
    sums.backward(given.d_sums(sums));
    CHECK(memory.largest() <= 2 * rows);
  }
  sums = at::Tensor();
  {
    const PeakMemory memory;
    queue->run();
    CHECK(memory.largest() <= std::max(weights, chunks.bytes));
    CHECK(memory.peak() < weights + 3 * chunks.bytes);
  }
  CHECK(weights + 3 * chunks.bytes < logits / 4);
  // Where no gradient of the rows is wanted, none is computed.
  const PeakMemory memory;
  const auto alone = projected_cross_entropy(given.rows.detach(), given.weight, given.targets,
                                             given.counts, chunks);
  CHECK(memory.held() < rows / 2);
}

TEST_CASE("by default a head holds whole logits up to 64 MiB", "[kernels]") {
  // 4096 columns of 4 bytes: 4096 rows are just 64 MiB.
  const auto weight = at::zeros({4096, 1}).set_requires_grad(true);
  const auto kept = [&](std::int64_t row_count) {
    const PeakMemory memory;
    const auto sums = projected_cross_entropy(at::zeros({row_count, 1}), weight,
                                              at::zeros({row_count}, at::kLong), {row_count});
    return memory.held();
  };
  CHECK(kept(4096) >= 64 << 20);
  CHECK(kept(4097) < 1 << 20);
}

TEST_CASE("targets that do not fit a head in chunks are refused", "[kernels][errors]") {
  const Case given(12, 5, 13);
  const auto loss = [&](const at::Tensor& targets) {
    return projected_cross_entropy(given.rows, given.weight, targets, given.counts, by(5));
  };
  CHECK_THROWS_AS(loss(at::full({12}, 13, at::kLong)), c10::Error);
  CHECK_THROWS_AS(loss(at::full({12}, -1, at::kLong)), c10::Error);
  CHECK_THROWS_AS(loss(at::zeros({11}, at::kLong)), c10::ValueError);
}

TEST_CASE("a head in chunks on a GPU is that of a CPU", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    CAPTURE(type);
    const Case given(700, 64, 4001, type);
    Case exact = given;
    exact.rows = given.rows.detach().to(at::kDouble).set_requires_grad(true);
    exact.weight = given.weight.detach().to(at::kDouble).set_requires_grad(true);
    const auto wanted = found(exact, [&] { return exact.whole(); });
    const Case there = given.on(device);
    const LogitChunks chunks{1 << 20, 64};
    const auto run = [&] { return there.chunked(chunks); };
    const auto chunked = found(there, run);
    CHECK(chunked == found(there, run, /*split=*/true));
    const double most = type == at::kDouble ? 1e-11 : type == at::kFloat ? 1e-5 : 2e-2;
    for (const auto part : {&Found::sums, &Found::d_rows, &Found::d_weight})
      CHECK(relative_difference((chunked.*part).cpu(), wanted.*part) < most);
  }
}
