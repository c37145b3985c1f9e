#include "runtime/vocabulary/random.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

namespace troupe {
namespace {

TEST_CASE("random numbers are SplitMix64's", "[vocabulary]") {
  // The published first numbers of the seeds 0 and 1234567; elsewhere they are not made by this
  // code.
  Random zero(0);
  CHECK(zero.next() == 0xE220A8397B1DCDAF);
  CHECK(zero.next() == 0x6E789E6AA1B965F4);
  CHECK(zero.next() == 0x06C45D188009454F);

  Random other(1234567);
  CHECK(other.next() == 6457827717110365317U);
  CHECK(other.next() == 3203168211198807973U);
  CHECK(other.next() == 9817491932198370423U);
}

TEST_CASE("each way to bound a random number uses the same bits by its own rule", "[vocabulary]") {
  // Seed 0 begins with 0xE220A8397B1DCDAF = 16294208416658607535, which is 0.88331 of 2^64.
  // By remainder: 16294208416658607535 mod 10 = 5. By multiplication: floor(0.88331 * 10) = 8.
  CHECK(Random(0).below(10) == 5);
  CHECK(Random(0).below_unbiased(10) == 8);
  CHECK(Random(0).between(-4, 5) == 4);  // Ten values from -4: the one at place 8.
  CHECK(Random(0).uniform() > 0.8833);
  CHECK(Random(0).uniform() < 0.8834);
}

TEST_CASE("a range of one value and the widest range are both drawn from", "[vocabulary]") {
  Random random(3);
  CHECK(random.below(1) == 0);
  CHECK(random.below_unbiased(1) == 0);
  CHECK(random.between(7, 7) == 7);
  bool negative = false;
  bool positive = false;
  for (int draw = 0; draw < 64; ++draw) {
    const auto value = random.between(INT32_MIN, INT32_MAX);
    negative = negative || value < 0;
    positive = positive || value > 0;
  }
  CHECK((negative && positive));
}

TEST_CASE("random numbers stay in their range and a shuffle loses nothing",
          "[vocabulary][property]") {
  const auto seed = GENERATE(range(0u, 50u));
  CAPTURE(seed);
  Random random(seed);
  std::vector<int> values(1 + seed);
  std::iota(values.begin(), values.end(), 0);
  std::vector<int> shuffled = values;
  random.shuffle(shuffled);
  CHECK(std::ranges::is_permutation(values, shuffled));
  for (int draw = 0; draw < 100; ++draw) {
    CHECK(random.below(7) < 7);
    CHECK(random.below_unbiased(7) < 7);
    const double uniform = random.uniform();
    CHECK((uniform >= 0 && uniform < 1));
    CHECK(random.log_normal(100, 0.5) > 0);
  }
}

TEST_CASE("normal numbers have mean 0 and deviation 1", "[vocabulary][property]") {
  Random random(1);
  constexpr int kCount = 20000;
  double sum = 0;
  double squares = 0;
  for (int draw = 0; draw < kCount; ++draw) {
    const double value = random.normal();
    sum += value;
    squares += value * value;
  }
  // The mean of 20,000 deviates by 1 / sqrt(20000) = 0.007; the mean of squares by sqrt(2 / 20000)
  // = 0.01.
  CHECK(std::abs(sum / kCount) < 0.035);
  CHECK(std::abs(squares / kCount - 1) < 0.05);
}

}  // namespace
}  // namespace troupe
