#include "scheduler/iteration/distribute.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using Counts = std::vector<std::int64_t>;

struct Value {
  double deviation = std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

Value value_of(const std::vector<double>& ms, const Counts& counts) {
  double mean = 0, max = 0, deviation = 0;
  for (std::size_t i = 0; i < ms.size(); ++i) {
    mean += ms[i] * static_cast<double>(counts[i]) / static_cast<double>(ms.size());
    max = std::max(max, ms[i] * static_cast<double>(counts[i]));
  }
  for (std::size_t i = 0; i < ms.size(); ++i)
    deviation += std::pow(ms[i] * static_cast<double>(counts[i]) - mean, 2);
  return {deviation, max};
}

// Every way to split; the least deviation, and among those the least maximum.
Value brute_force(const std::vector<double>& ms, std::int64_t microbatches) {
  Value best;
  Counts counts(ms.size(), 1);
  std::function<void(std::size_t, std::int64_t)> split = [&](std::size_t i, std::int64_t left) {
    if (i + 1 == ms.size()) {
      counts[i] = left;
      const Value now = value_of(ms, counts);
      const double tolerance = 1e-9 * (1 + best.deviation);
      if (now.deviation < best.deviation - tolerance ||
          (now.deviation < best.deviation + tolerance && now.max < best.max) ||
          !std::isfinite(best.deviation))
        best = now;
      return;
    }
    const auto others = static_cast<std::int64_t>(ms.size() - i) - 1;
    for (counts[i] = 1; counts[i] <= left - others; ++counts[i]) split(i + 1, left - counts[i]);
    counts[i] = 1;
  };
  split(0, microbatches);
  return best;
}

TEST_CASE("equal pipelines share equally, the first take what is left", "[scheduler]") {
  CHECK(distribute(std::vector<double>{3, 3, 3, 3}, 512, 1).value() == Counts{128, 128, 128, 128});
  CHECK(distribute(std::vector<double>{3, 3, 3}, 16, 2).value() == Counts{3, 3, 2});
}

TEST_CASE("a pipeline of half the speed gets half the work", "[scheduler]") {
  // 10 x 4 = 20 x 2 = 40: deviation 0.
  CHECK(distribute(std::vector<double>{10, 20}, 6, 1).value() == Counts{4, 2});
  // T = 1, 3 with 5 microbatches: (4,1): 4 and 3, deviation 0.5; (3,2): 3 and 6, 4.5.
  CHECK(distribute(std::vector<double>{1, 3}, 5, 1).value() == Counts{4, 1});
}

TEST_CASE("equal deviations go to the lower maximum", "[scheduler]") {
  // T = 2, 6 with 4 microbatches: (3,1): 6, 6 is exact. With 2 and 4, 5 microbatches: (3,2): 6, 8
  // deviates 2; (4,1): 8, 4 deviates 8. With 2 and 2, 3 microbatches: 4, 2 either way.
  CHECK(distribute(std::vector<double>{2, 4}, 5, 1).value() == Counts{3, 2});
  // T = 1, 3, M = 6: (5,1): 5, 3 deviates 2; (4,2): 4, 6 deviates 2. Maximum 5 < 6.
  CHECK(distribute(std::vector<double>{1, 3}, 6, 1).value() == Counts{5, 1});
}

TEST_CASE("every pipeline gets a microbatch however slow it is", "[scheduler]") {
  CHECK(distribute(std::vector<double>{1, 1000}, 10, 1).value() == Counts{9, 1});
  CHECK(distribute(std::vector<double>{5}, 12, 3).value() == Counts{4});
}

TEST_CASE("a batch that cannot be split names the nearest that can", "[scheduler][errors]") {
  const std::vector<double> three{1, 2, 3};
  auto result = distribute(three, 1023, 8);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code == Errc::infeasible);
  CHECK_THAT(result.error().message, ContainsSubstring("no multiple of the microbatch size 8"));
  CHECK_THAT(result.error().fix, ContainsSubstring("1024"));
  result = distribute(three, 16, 8);
  CHECK_THAT(result.error().message, ContainsSubstring("too small for 3 pipelines"));
  CHECK_THAT(result.error().fix, ContainsSubstring("24"));
  CHECK(nearest_batch(20, 8, 1) == 16);  // 16 and 24 are equally near.
  CHECK(nearest_batch(21, 8, 1) == 24);
  CHECK(nearest_batch(1, 8, 1) == 8);
}

TEST_CASE("bad times and sizes are refused", "[scheduler][errors]") {
  CHECK(distribute({}, 8, 1).error().code == Errc::invalid_argument);
  CHECK(distribute(std::vector<double>{1, 0}, 8, 1).error().where == "microbatch_ms[1]");
  CHECK_FALSE(distribute(std::vector<double>{std::nan("")}, 8, 1).ok());
  CHECK_FALSE(distribute(std::vector<double>{1e300, 1e300}, 8, 1).ok());
  const auto apart = distribute(std::vector<double>{1e-6, 8}, 8, 1);
  REQUIRE_FALSE(apart.ok());
  CHECK_THAT(apart.error().message, ContainsSubstring("more than a millionfold"));
  CHECK(distribute(std::vector<double>{1}, 0, 1).error().where == "global_batch");
  CHECK(distribute(std::vector<double>{1}, 1, 0).error().where == "microbatch_size");
}

TEST_CASE("distribute agrees with trying every split", "[scheduler][property]") {
  for (unsigned seed = 0; seed < 6000; ++seed) {
    std::mt19937 random(seed);
    const std::size_t pipelines = 1 + random() % 4;
    std::vector<double> ms;
    for (std::size_t i = 0; i < pipelines; ++i)
      ms.push_back(seed % 3 == 0   ? 1 + random() % 6  // Ties, equal pipelines.
                   : seed % 3 == 1 ? 1 + static_cast<double>(random()) / 4e9  // Nearly equal.
                                   : std::exp(static_cast<double>(random()) / 1e9));  // 1 .. 73.
    const auto microbatches = static_cast<std::int64_t>(pipelines + random() % 20);
    CAPTURE(seed, ms, microbatches);
    const auto result = distribute(ms, microbatches * 4, 4);
    REQUIRE(result.ok());
    REQUIRE(std::accumulate(result.value().begin(), result.value().end(), std::int64_t{0}) ==
            microbatches);
    REQUIRE(*std::min_element(result.value().begin(), result.value().end()) >= 1);
    const Value best = brute_force(ms, microbatches);
    const Value made = value_of(ms, result.value());
    REQUIRE(made.deviation == Approx(best.deviation).epsilon(1e-9).margin(1e-9));
    REQUIRE(made.max == Approx(best.max));
  }
}

TEST_CASE("a thousand unequal pipelines stay within one microbatch of each other",
          "[scheduler][property]") {
  std::mt19937 random(5);
  std::vector<double> ms;
  for (int i = 0; i < 1000; ++i) ms.push_back(1 + static_cast<double>(random()) / 1e9);
  const auto result = distribute(ms, 1'000'000, 1);
  REQUIRE(result.ok());
  double low = std::numeric_limits<double>::infinity(), high = 0;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < ms.size(); ++i) {
    low = std::min(low, ms[i] * static_cast<double>(result.value()[i]));
    high = std::max(high, ms[i] * static_cast<double>(result.value()[i]));
    sum += result.value()[i];
  }
  CHECK(sum == 1'000'000);
  CHECK(high - low <= *std::max_element(ms.begin(), ms.end()) * 1.01);
}

TEST_CASE("a split says whether it was proven or the search was cut off", "[scheduler]") {
  const std::vector<double> ms{1, 1.7, 2.9, 5.3, 7.1};
  const auto exact = distribute_proven(ms, 1000, 1).value();
  CHECK(exact.optimal);
  CHECK(exact.microbatches == distribute(ms, 1000, 1).value());
  const auto cut = distribute_proven(ms, 1000, 1, 1).value();
  CHECK_FALSE(cut.optimal);
  CHECK(std::accumulate(cut.microbatches.begin(), cut.microbatches.end(), std::int64_t{0}) == 1000);
}

TEST_CASE("speeds over six orders of magnitude are shared out in bounded time", "[scheduler]") {
  std::mt19937 random(3);
  std::vector<double> ms{1, 1e6};
  while (ms.size() < 400) ms.push_back(std::exp(static_cast<double>(random()) / 4294967296 * 13.8));
  for (const std::int64_t batch : {std::int64_t{1} << 20, std::int64_t{1} << 62}) {
    const auto shares = distribute(ms, batch, 1);
    REQUIRE(shares.ok());
    CHECK(*std::min_element(shares.value().begin(), shares.value().end()) >= 1);
    CHECK(std::accumulate(shares.value().begin(), shares.value().end(), std::int64_t{0}) == batch);
    CHECK(shares.value()[1] < shares.value()[0]);
  }
}

}  // namespace
}  // namespace troupe::scheduler
