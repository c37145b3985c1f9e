#include "balancer/loads/distributions.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <numeric>

namespace troupe::balancer {
namespace {

double relative_deviation(const std::vector<Workload>& samples) {
  return encoder_spread(samples).std_ms / encoder_spread(samples).mean_ms;
}

TEST_CASE("the same seed gives the same samples, another seed others", "[balancer]") {
  const auto distribution = GENERATE(from_range(distributions()));
  CHECK(generate_lengths(distribution, 50, 1) == generate_lengths(distribution, 50, 1));
  CHECK(generate_lengths(distribution, 50, 1) != generate_lengths(distribution, 50, 2));
  // A longer list begins with the shorter one.
  const auto longer = generate_lengths(distribution, 60, 1);
  CHECK(std::equal(longer.begin(), longer.begin() + 50,
                   generate_lengths(distribution, 50, 1).begin()));
}

TEST_CASE("every sample has media, text and positive work", "[balancer]") {
  const auto distribution = GENERATE(from_range(distributions()));
  for (const auto& sample : generate_lengths(distribution, 500, 3)) {
    CHECK_FALSE(sample.media.empty());
    CHECK(*std::min_element(sample.media.begin(), sample.media.end()) > 0);
    CHECK(sample.text > 0);
    CHECK(workload_of(sample).encoder_ms > 0);
  }
}

TEST_CASE("work is linear plus quadratic, per item in the encoder", "[balancer]") {
  // Items 10 and 20 with 1 per token and 0.1 per square: 30 + 10 + 40. Sequence 35: 2 x 35 + 0.2 x
  // 1225.
  const CostCurve curve{1, 0.1, 2, 0.2};
  const auto work = workload_of({{10, 20}, 5}, curve);
  CHECK(work.encoder_ms == Catch::Approx(80));
  CHECK(work.llm_ms == Catch::Approx(315));
}

TEST_CASE("charts vary most and captions least", "[balancer]") {
  const auto charts = generate_workloads(Distribution::charts, 4000, 1);
  const auto captions = generate_workloads(Distribution::captions, 4000, 1);
  const auto images = generate_workloads(Distribution::image_text, 4000, 1);
  CHECK(relative_deviation(charts) > relative_deviation(images));
  CHECK(relative_deviation(images) > relative_deviation(captions));
}

TEST_CASE("video and multi-image samples have several items", "[balancer]") {
  for (const auto& sample : generate_lengths(Distribution::multi_image, 200, 1))
    CHECK((sample.media.size() >= 2 && sample.media.size() <= 8));
  for (const auto& sample : generate_lengths(Distribution::video, 200, 1))
    CHECK((sample.media.size() >= 8 && sample.media.size() <= 64));
}

}  // namespace
}  // namespace troupe::balancer
