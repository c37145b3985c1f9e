#include "balancer/corrections/sample_correction.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>

#include "runtime/vocabulary/random.hpp"

namespace troupe::balancer {
namespace {

using Catch::Approx;

constexpr WorkShape kSlow{0, 640}, kPlain{0, 128};

void measure(SampleCorrection& correction, std::vector<ShapeShare> part, double ratio,
             int times = 1) {
  for (int i = 0; i < times; ++i) correction.record(part, ratio);
}

TEST_CASE("a shape that fills its parts alone is as slow as they are", "[balancer]") {
  SampleCorrection correction;
  measure(correction, {{kSlow, 10}}, 3, 3);
  CHECK(correction.factor(kSlow) == 1);  // Measured too rarely.
  measure(correction, {{kSlow, 10}}, 3);
  CHECK(correction.factor(kSlow) == Approx(3));
  CHECK(correction.factor({0, 577}) == Approx(3));  // Filed up to 640 tokens.
  CHECK(correction.factor({0, 576}) == 1);
  CHECK(correction.factor({1, 640}) == 1);
  CHECK(correction.corrected_shapes() == 1);
}

TEST_CASE("the first part's surplus is laid to its shapes by the squares of their shares",
          "[balancer]") {
  // Shares 3/4 and 1/4, surplus 1: each shape takes 1 x share^2 / (27/64 + 1/64).
  SampleCorrection correction({.measurements_min = 1});
  measure(correction, {{kSlow, 15}, {kPlain, 2}, {kPlain, 3}}, 2);
  CHECK(correction.factor(kSlow) == Approx(1 + 9 / 7.0));
  CHECK(correction.factor(kPlain) == Approx(1 + 1 / 7.0));
}

TEST_CASE("a shape that only rode along with a slow one is cleared", "[balancer]") {
  // Slow: five times; plain as predicted. Half the work of a mixed part each: 3.
  SampleCorrection correction;
  for (int step = 0; step < 40; ++step) {
    measure(correction, {{kSlow, 10}, {kPlain, 10}}, 3);
    measure(correction, {{kPlain, 10}, {kPlain, 10}}, 1, 3);
  }
  CHECK(correction.factor(kSlow) == Approx(5).epsilon(0.05));
  CHECK(correction.factor(kPlain) == 1);
}

TEST_CASE("of many mixed shapes the one slow one is found", "[balancer][property]") {
  const auto seed = GENERATE(range(0U, 20U));
  Random random(seed);
  SampleCorrection correction;
  for (int part = 0; part < 400; ++part) {
    std::vector<ShapeShare> shares;
    double predicted = 0, measured = 0;
    for (int i = 0; i < 3; ++i) {
      const auto kind = static_cast<TokenCount>(random.below(8));
      const double ms = 5 + static_cast<double>(kind);
      shares.push_back({{0, 64 * (kind + 1)}, ms});
      predicted += ms;
      measured += ms * (kind == 5 ? 4 : 1);
    }
    const double noise = 0.98 + 0.0001 * static_cast<double>(random.below(400));
    correction.record(shares, noise * measured / predicted);
  }
  for (TokenCount kind = 0; kind < 8; ++kind) {
    CAPTURE(seed, kind);
    const double factor = correction.factor({0, 64 * (kind + 1)});
    if (kind == 5)
      CHECK(factor == Approx(4).epsilon(0.1));
    else
      CHECK(std::abs(factor - 1) < 0.25);
  }
}

TEST_CASE("shapes nobody measured follow the others of a module that is slow as a whole",
          "[balancer]") {
  SampleCorrection correction;
  const auto shape = [&](TokenCount tokens, double factor) {
    measure(correction, {{{0, tokens}, 10}}, factor, 4);
  };
  shape(64, 2.9);
  shape(128, 3);
  shape(192, 3.1);
  correction.end_iteration();
  CHECK(correction.factor({0, 1000}) == 1);  // Three shapes may be odd ones.
  shape(256, 3.2);
  CHECK(correction.factor({0, 1000}) == 1);  // Within an iteration nothing moves.
  correction.end_iteration();
  CHECK(correction.factor({0, 1000}) == Approx(3.1));
  CHECK(correction.factor({0, 64}) == Approx(2.9));
  CHECK(correction.factor({1, 1000}) == 1);
}

TEST_CASE("one that goes on knows what the one before knew, medians too", "[balancer]") {
  SampleCorrection before, after;
  for (TokenCount kind = 1; kind <= 5; ++kind) measure(before, {{{0, 64 * kind}, 10}}, 2, 6);
  before.end_iteration();
  after.restore(before.factors().entries());
  CHECK(after.factor({0, 64}) == before.factor({0, 64}));
  CHECK(before.factor({0, 6400}) == Catch::Approx(2));  // Never measured.
  CHECK(after.factor({0, 6400}) == before.factor({0, 6400}));
  CHECK(after.corrected_shapes() == 5);
}

TEST_CASE("a few odd shapes say nothing about the others", "[balancer]") {
  SampleCorrection correction;
  for (TokenCount kind = 1; kind <= 7; ++kind)
    measure(correction, {{{0, 64 * kind}, 10}}, kind <= 3 ? 4 : 1, 4);
  correction.end_iteration();
  CHECK(correction.factor({0, 64}) == Approx(4));
  CHECK(correction.factor({0, 1000}) == 1);
}

TEST_CASE("a device that changes its speed is followed", "[balancer]") {
  SampleCorrection correction;
  measure(correction, {{kSlow, 10}}, 3, 200);
  measure(correction, {{kSlow, 10}}, 1, 20);
  CHECK(correction.factor(kSlow) == 1);
}

TEST_CASE("impossible measurements of parts are ignored", "[balancer][errors]") {
  SampleCorrection correction({.measurements_min = 1});
  measure(correction, {{kSlow, 10}}, 0);
  measure(correction, {{kSlow, 10}}, NAN);
  measure(correction, {}, 2);
  measure(correction, {{{0, 0}, 10}, {kSlow, 0}, {kSlow, NAN}}, 2);
  CHECK(correction.factor(kSlow) == 1);
}

TEST_CASE("no shape becomes weightless, and the table stays within its size", "[balancer]") {
  SampleCorrection correction({.granularity = 1, .measurements_min = 1, .shapes_max = 3});
  measure(correction, {{{0, 1}, 10}}, 3);
  measure(correction, {{{0, 1}, 1}, {{0, 2}, 10}}, 1e-6);
  CHECK(correction.factor({0, 2}) == Approx(0.1));
  for (TokenCount tokens = 3; tokens < 50; ++tokens) measure(correction, {{{0, tokens}, 10}}, 1.5);
  CHECK(correction.factor({0, 1}) > 1.5);
  CHECK(correction.factor({0, 20}) == 1);  // Forgotten.
}

}  // namespace
}  // namespace troupe::balancer
