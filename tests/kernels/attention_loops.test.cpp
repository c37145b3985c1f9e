#include "kernels/attention_loops.hpp"

#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/vocabulary/cpu_clones.hpp"
#include "runtime/vocabulary/random.hpp"

namespace troupe::kernels::cpu {
namespace {

// Levels that run here.
std::vector<int> levels() {
  std::vector<int> found{1};
  for (const int level : {3, 4})
    if (level <= cpu_level()) found.push_back(level);
  return found;
}

template <class T>
std::vector<T> numbers(Random& random, std::int64_t count, double scale = 1) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (auto& value : values) value = static_cast<T>(scale * random.normal());
  return values;
}

template <class T>
constexpr double kTolerance = sizeof(T) == 4 ? 2e-5 : 1e-13;

TEMPLATE_TEST_CASE("packed rows are the same rows at every level", "[kernels][property]", float,
                   double) {
  using T = TestType;
  constexpr auto kWide = kPanel<T>;
  for (const int level : levels())
    for (const std::int64_t dim : {std::int64_t{3}, kWide, 2 * kWide + 5})
      for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{9}, 2 * kWide}) {
        CAPTURE(level, dim, rows);
        const auto& loops = attention_loops<T>(level);
        const std::int64_t stride = dim + 4, padded = 2 * kWide;
        Random random(static_cast<std::uint64_t>(dim + rows));
        const auto source = numbers<T>(random, (rows + 1) * stride);
        const HeadSlice<T> slice{source.data(), stride, rows, dim};
        const auto at = [&](std::int64_t row, std::int64_t d) {
          return row < rows && d < dim ? source[static_cast<std::size_t>(row * stride + d)] : T(0);
        };
        const auto size = static_cast<std::size_t>(padded * round_up(dim, kWide));
        std::vector<T> flat(size, T(7)), panels(size, T(7)), turned(size, T(7)), back(size, T(7));
        loops.pack_rows(slice, T(2), padded, flat.data());
        loops.pack_panels(slice, T(2), padded, panels.data());
        loops.pack_transposed(slice, padded, turned.data());
        loops.unpack_rows({flat.data(), dim, rows, dim}, T(0.5), {back.data(), dim});
        std::size_t wrong = 0;
        const auto expect = [&](const std::vector<T>& found, std::int64_t index, T value) {
          wrong += found[static_cast<std::size_t>(index)] != value;
        };
        for (std::int64_t row = 0; row < padded; ++row)
          for (std::int64_t d = 0; d < round_up(dim, kWide); ++d) {
            expect(panels, (d / kWide * padded + row) * kWide + d % kWide, 2 * at(row, d));
            if (d >= dim) continue;
            expect(flat, row * dim + d, 2 * at(row, d));
            expect(turned, (row / kWide * dim + d) * kWide + row % kWide, at(row, d));
            expect(back, row * dim + d, row < rows ? at(row, d) : T(7));
          }
        CHECK(wrong == 0);
      }
}

TEMPLATE_TEST_CASE("products are sums of products at every level", "[kernels][property]", float,
                   double) {
  using T = TestType;
  constexpr auto kWide = kPanel<T>;
  for (const int level : levels())
    for (const bool transposed : {false, true})
      for (const bool add : {false, true})
        for (const std::int64_t depth : {1, 7, 40}) {
          CAPTURE(level, transposed, add, depth);
          Random random(static_cast<std::uint64_t>(depth));
          const std::int64_t rows = 2 * kStrip, panels = 3, stride = panels * kWide + 5;
          const auto left = numbers<T>(random, rows * depth);
          const auto right = numbers<T>(random, panels * depth * kWide);
          const auto before = numbers<T>(random, rows * stride);
          auto out = before;
          const LeftMatrix<T> a{left.data(), transposed ? 1 : depth, transposed ? rows : 1};
          attention_loops<T>(level).product(a, {right.data(), depth * kWide}, {out.data(), stride},
                                            {rows, panels, depth}, add);
          double wrong = 0;
          for (std::int64_t row = 0; row < rows; ++row)
            for (std::int64_t column = 0; column < stride; ++column) {
              const auto at = static_cast<std::size_t>(row * stride + column);
              const bool inside = column < panels * kWide;
              double expected = inside && !add ? 0 : static_cast<double>(before[at]);
              for (std::int64_t k = 0; inside && k < depth; ++k)
                expected += static_cast<double>(a.data[row * a.row_stride + k * a.depth_stride]) *
                            static_cast<double>(right[static_cast<std::size_t>(
                                (column / kWide * depth + k) * kWide + column % kWide)]);
              wrong = std::max(wrong, std::abs(expected - static_cast<double>(out[at])));
            }
          CHECK(wrong < kTolerance<T>);
        }
}

// Scores of one row in two steps, the second larger; the output was the sum of the first weights.
TEMPLATE_TEST_CASE("an online softmax is a softmax at every level", "[kernels][property]", float,
                   double) {
  using T = TestType;
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  for (const int level : levels()) {
    CAPTURE(level);
    Random random(7);
    const std::int64_t columns = 2 * kPanel<T>;
    auto first = numbers<T>(random, columns, 2), second = numbers<T>(random, columns, 3);
    second[1] += 5;  // The largest.
    first[3] = second[5] = kHidden;
    second[7] = T(-1e30);  // Far below: counts for nothing, and is no denormal number.
    const auto all = [&] {
      auto joined = first;
      joined.insert(joined.end(), second.begin(), second.end());
      return joined;
    }();
    T top = kHidden, total = 0;
    std::vector<T> out(static_cast<std::size_t>(kPanel<T>), T(0));
    const auto step = [&](std::vector<T>& scores) {
      attention_loops<T>(level).online_softmax(
          {{scores.data(), columns}, columns, &top, &total, {out.data(), 0}, kPanel<T>}, 1);
      for (const auto weight : scores) out[0] += weight;
    };
    step(first);
    step(second);
    const double largest = static_cast<double>(*std::max_element(all.begin(), all.end()));
    double expected = 0;
    for (const auto score : all) expected += std::exp2(static_cast<double>(score) - largest);
    CHECK(static_cast<double>(top) == largest);
    CHECK(std::abs(static_cast<double>(total) / expected - 1) < kTolerance<T>);
    CHECK(std::abs(static_cast<double>(out[0]) / expected - 1) < kTolerance<T>);
    CHECK(second[5] == 0);
    CHECK(second[7] == 0);
    std::vector<T> hidden(static_cast<std::size_t>(columns), kHidden);
    top = kHidden, total = 0;
    step(hidden);
    CHECK(top == kHidden);
    CHECK(total == 0);
  }
}

TEMPLATE_TEST_CASE("the gradient of a softmax at every level", "[kernels][property]", float,
                   double) {
  using T = TestType;
  for (const int level : levels()) {
    CAPTURE(level);
    Random random(5);
    const std::int64_t columns = 2 * kPanel<T>, rows = 3;
    const auto scores = numbers<T>(random, rows * columns, 4);
    const auto d_weights = numbers<T>(random, rows * columns);
    const std::vector<T> log_total{T(3), T(8), std::numeric_limits<T>::infinity()};
    const std::vector<T> pull{T(0.5), T(-2), T(1)};
    auto weights = scores, d_scores = d_weights;
    attention_loops<T>(level).softmax_gradient({{weights.data(), columns},
                                                {d_scores.data(), columns},
                                                columns,
                                                log_total.data(),
                                                pull.data()},
                                               rows);
    double wrong = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const auto row = i / static_cast<std::size_t>(columns);
      const double weight =
          std::exp2(static_cast<double>(scores[i]) - static_cast<double>(log_total[row]));
      const double gradient =
          weight * (static_cast<double>(d_weights[i]) - static_cast<double>(pull[row]));
      wrong = std::max(
          {wrong, std::abs(static_cast<double>(weights[i]) / (weight + 1e-300) - 1) * (weight > 0),
           std::abs(static_cast<double>(weights[i])) * (weight == 0),
           std::abs(static_cast<double>(d_scores[i]) - gradient) / (1 + weight)});
    }
    CHECK(wrong < kTolerance<T>);
  }
}

}  // namespace
}  // namespace troupe::kernels::cpu
