#include "balancer/corrections/adaptive_correction.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "balancer/microbatches/partition_search.hpp"
#include "runtime/vocabulary/random.hpp"

namespace troupe::balancer {
namespace {

constexpr WorkShape kSlow{0, 100};

TEST_CASE("a shape that deviates is corrected after two measurements", "[balancer]") {
  AdaptiveCorrection correction;
  correction.record(kSlow, 10, 15);
  CHECK(correction.corrected_ms(kSlow, 10) == 10);
  correction.record(kSlow, 10, 15);
  CHECK(correction.corrected_ms(kSlow, 10) == Catch::Approx(15));
  // Filed with its neighbours up to 128 tokens, not beyond, and not in another module.
  CHECK(correction.corrected_ms({0, 128}, 20) == Catch::Approx(30));
  CHECK(correction.corrected_ms({0, 129}, 20) == 20);
  CHECK(correction.corrected_ms({1, 100}, 10) == 10);
  CHECK(correction.corrected_shapes() == 1);
}

TEST_CASE("measurements blend, and noise is left alone", "[balancer]") {
  AdaptiveCorrection correction;
  correction.record(kSlow, 10, 20);
  correction.record(kSlow, 10, 10);  // 0.5 x 2 + 0.5 x 1 = 1.5.
  CHECK(correction.corrected_ms(kSlow, 10) == Catch::Approx(15));
  correction.record({0, 1000}, 10, 10.3);
  correction.record({0, 1000}, 10, 10.3);
  CHECK(correction.corrected_ms({0, 1000}, 10) == 10);
}

TEST_CASE("tracking stops when its benefit falls below its cost, and what it learned stays",
          "[balancer]") {
  // Throughput 100/10 = 10 predicted, 100/20 = 5 measured: benefit 5 until learned, then 0.
  AdaptiveCorrection correction({.iterations = 4});
  correction.set_tracking_cost(10, 9);
  for (int i = 0; i < 4; ++i) {
    correction.record(kSlow, 10, 20);
    correction.end_iteration();
  }
  // 5, 5, 0, 0: mean 2.5 > 1.
  CHECK(correction.mean_benefit() == Catch::Approx(2.5));
  CHECK(correction.tracking());
  for (int i = 0; i < 4; ++i) {
    correction.record(kSlow, 10, 20);
    correction.end_iteration();
  }
  CHECK(correction.mean_benefit() == Catch::Approx(0).margin(1e-9));
  CHECK_FALSE(correction.tracking());
  CHECK(correction.corrected_ms(kSlow, 10) == Catch::Approx(20));
  correction.record(kSlow, 10, 40);  // Not watched any more.
  CHECK(correction.corrected_ms(kSlow, 10) == Catch::Approx(20));
  AdaptiveCorrection::Watch anew;
  correction.restore(ShapeFactors::Entries(correction.factors().entries()), anew);
  correction.record(kSlow, 10, 40);
  CHECK(correction.corrected_ms(kSlow, 10) == Catch::Approx(30));
}

TEST_CASE("without a cost tracking goes on while it finds anything", "[balancer]") {
  AdaptiveCorrection correction({.measurements_min = 1000, .iterations = 2});
  correction.set_tracking_cost(9, 10);
  for (int i = 0; i < 6; ++i) {
    correction.record(kSlow, 10, 20);
    correction.end_iteration();
  }
  CHECK(correction.tracking());
  for (int i = 0; i < 2; ++i) correction.end_iteration();
  CHECK_FALSE(correction.tracking());
}

TEST_CASE("noise is no benefit", "[balancer]") {
  // Measurements within 5 % of what is predicted, tracking costs next to nothing: it stops.
  AdaptiveCorrection correction({.iterations = 3});
  correction.set_tracking_cost(10, 9.999);
  for (int i = 0; i < 3; ++i) {
    for (const double measured_ms : {9.6, 10.4}) correction.record(kSlow, 10, measured_ms);
    correction.end_iteration();
  }
  CHECK(correction.mean_benefit() == 0);
  CHECK_FALSE(correction.tracking());
}

TEST_CASE("what is learned evens out the buckets of the next batches", "[balancer][property]") {
  // Lengths of 513 to 576 tokens fall into a slow kernel and take three times as long as predicted.
  const auto predicted_ms = [](TokenCount tokens) { return 0.01 * static_cast<double>(tokens); };
  const auto measured_ms = [&](TokenCount tokens) {
    return predicted_ms(tokens) * (tokens > 512 && tokens <= 576 ? 3 : 1);
  };
  AdaptiveCorrection correction({.iterations = 4});
  correction.set_tracking_cost(100, 99.9);
  Random random(7);
  std::vector<double> unevenness;  // Slowest bucket over the mean, batch by batch.
  while (correction.tracking() && unevenness.size() < 100) {
    std::vector<TokenCount> lengths;
    std::vector<Workload> expected;
    for (int i = 0; i < 128; ++i) {
      lengths.push_back(256 + static_cast<TokenCount>(random.below(512)));
      expected.push_back(
          {0, correction.corrected_ms({0, lengths.back()}, predicted_ms(lengths.back()))});
    }
    double slowest = 0, sum = 0;
    for (const auto& bucket : partition_search(expected, 8)) {
      double ms = 0;
      for (const auto sample : bucket) {
        const auto tokens = lengths[static_cast<std::size_t>(sample)];
        ms += measured_ms(tokens);
        correction.record({0, tokens}, predicted_ms(tokens), measured_ms(tokens));
      }
      slowest = std::max(slowest, ms);
      sum += ms;
    }
    correction.end_iteration();
    unevenness.push_back(8 * slowest / sum);
  }
  CHECK(unevenness.front() > 1.05);
  CHECK(unevenness.back() < 1.01);
  CHECK(unevenness.size() == 8);  // Four batches that teach something, four that do not.
  CHECK(correction.corrected_shapes() == 1);
}

TEST_CASE("impossible measurements are ignored", "[balancer][errors]") {
  AdaptiveCorrection correction({.measurements_min = 1});
  correction.record(kSlow, 10, 0);
  correction.record(kSlow, 10, NAN);
  correction.record(kSlow, -1, 10);
  correction.record({0, 0}, 10, 20);
  CHECK(correction.corrected_ms(kSlow, 10) == 10);
  CHECK(correction.corrected_shapes() == 0);
}

TEST_CASE("the table stays within its size and keeps what deviates most", "[balancer]") {
  AdaptiveCorrection correction({.granularity = 1, .measurements_min = 1, .shapes_max = 3});
  correction.record({0, 1}, 10, 30);
  for (TokenCount tokens = 2; tokens < 50; ++tokens) correction.record({0, tokens}, 10, 15);
  CHECK(correction.corrected_shapes() == 3);
  CHECK(correction.corrected_ms({0, 1}, 10) == Catch::Approx(30));
}

}  // namespace
}  // namespace troupe::balancer
