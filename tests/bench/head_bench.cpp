// A head and its loss, forward and backward: logits of all rows at once beside chunks of them.
//
//   head_bench [REPEATS]
//
// Prints JSON lines (README.md). Both ways take turns, so that a busy machine slows both.

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros_like.h>

#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cross_entropy.hpp"
#include "kernels/linear.hpp"
#include "kernels/projected_cross_entropy.hpp"
#include "tests/bench/report.hpp"
#include "tests/kernels/peak_memory.hpp"

using namespace troupe;
using namespace troupe::kernels;

namespace {

struct Size {
  std::int64_t rows, vocabulary, width;
};

at::Tensor wave(std::int64_t rows, std::int64_t columns, double scale) {
  return at::arange(rows * columns, at::kFloat)
      .mul_(0.7)
      .sin_()
      .mul_(scale)
      .view({rows, columns})
      .set_requires_grad(true);
}

struct Head {
  at::Tensor rows, weight, targets;
  std::vector<std::int64_t> counts;

  explicit Head(const Size& size)
      : rows(wave(size.rows, size.width, 1)),
        weight(wave(size.vocabulary, size.width, 0.02)),
        targets(at::arange(size.rows, at::kLong).mul(7919).remainder(size.vocabulary)),
        counts{size.rows / 2, size.rows - size.rows / 2} {
    weight.mutable_grad() = at::zeros_like(weight);  // As a stage keeps it.
  }

  at::Tensor whole() const {
    return cross_entropy_sums(kernels::linear(rows, weight), targets, counts);
  }
  at::Tensor chunked() const { return projected_cross_entropy(rows, weight, targets, counts); }
};

struct Way {
  const char* name;
  std::function<at::Tensor()> forward;
  std::vector<double> ms = {};
  double kept_mb = 0, peak_mb = 0;

  void run(bool counts) {
    const PeakMemory memory;
    double kept = 0;
    const auto begin = std::clock();
    const auto sums = forward();
    kept = static_cast<double>(memory.held());
    sums.sum().backward();
    const auto end = std::clock();  // Processor time: other programs do not count.
    if (!counts) return;
    ms.push_back(1000.0 * static_cast<double>(end - begin) / CLOCKS_PER_SEC);
    kept_mb = kept / 1e6;
    peak_mb = static_cast<double>(memory.peak()) / 1e6;
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::stoi(argv[1]) : 5;
  at::set_num_threads(1);
  for (const Size& size : {Size{64, 256, 128}, Size{512, 2048, 256}, Size{512, 32000, 256},
                           Size{1024, 32000, 256}, Size{4096, 32000, 1024}}) {
    const Head head(size);
    Way whole{"head, whole logits", [&] { return head.whole(); }};
    Way chunked{"head, logits in chunks", [&] { return head.chunked(); }};
    const int times = repeats * (size.rows * size.vocabulary < 2'000'000 ? 20 : 1);
    for (int repeat = 0; repeat <= times; ++repeat)
      for (Way* way : {&whole, &chunked}) {
        head.rows.mutable_grad() = at::Tensor();
        way->run(repeat > 0);
      }
    const std::string words = std::to_string(size.rows) + " x " + std::to_string(size.vocabulary) +
                              " x " + std::to_string(size.width);
    for (const Way* way : {&whole, &chunked}) {
      const std::string name = way->name;
      bench::report(name + ": forward and backward", bench::median(way->ms), "ms",
                    {{"size", words}, {"better", "lower"}, {"bound", bench::median(whole.ms)}});
      bench::report(name + ": kept until the backward", way->kept_mb, "MB",
                    {{"size", words}, {"better", "lower"}, {"bound", whole.kept_mb}});
      bench::report(name + ": most at a time", way->peak_mb, "MB",
                    {{"size", words}, {"better", "lower"}, {"bound", whole.peak_mb}});
    }
  }
  return 0;
}
