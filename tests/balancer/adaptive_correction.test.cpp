#include "balancer/adaptive_correction.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

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
  correction.restart_tracking();
  correction.record(kSlow, 10, 40);
  CHECK(correction.corrected_ms(kSlow, 10) == Catch::Approx(30));
}

TEST_CASE("without a cost tracking goes on while it finds anything", "[balancer]") {
  AdaptiveCorrection correction({.measurements_min = 1000, .iterations = 2});
  correction.set_tracking_cost(9, 10);
  CHECK(correction.tracking_cost() == 0);
  for (int i = 0; i < 6; ++i) {
    correction.record(kSlow, 10, 20);
    correction.end_iteration();
  }
  CHECK(correction.tracking());
  for (int i = 0; i < 2; ++i) correction.end_iteration();
  CHECK_FALSE(correction.tracking());
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
