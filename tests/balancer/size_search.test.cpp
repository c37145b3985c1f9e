#include "balancer/microbatches/size_search.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

namespace troupe::balancer {
namespace {

using Catch::Approx;

// Distance of relative sizes from wanted ones.
double distance(std::span<const Workload> sizes, std::span<const Workload> wanted) {
  double sum = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    sum += std::abs(sizes[i].encoder_ms - wanted[i].encoder_ms) +
           std::abs(sizes[i].llm_ms - wanted[i].llm_ms);
  return sum;
}

TEST_CASE("the size search finds a shape that is no taper", "[balancer]") {
  const std::vector<Workload> wanted{{0.5, 0.5}, {1, 1}, {0.7, 0.7}, {1, 1}};
  std::int64_t asked = 0;
  const auto found = search_sizes({.count = 4, .trials_max = 4000},
                                  [&](std::span<const Workload> sizes) -> std::optional<double> {
                                    ++asked;
                                    return 1 + distance(sizes, wanted);
                                  });
  CHECK(distance(found, wanted) < 0.05);
  CHECK(asked > 4000);  // Tapers come before the free changes.
}

TEST_CASE("with a tilt both sides have sizes of their own", "[balancer]") {
  const std::vector<Workload> wanted{{0.5, 0.4}, {1, 1.1}, {1, 1}};
  const auto score = [&](std::span<const Workload> sizes) -> std::optional<double> {
    return 1 + distance(sizes, wanted);
  };
  const auto tilted = search_sizes({.count = 3, .trials_max = 4000, .tilt = 0.25}, score);
  CHECK(distance(tilted, wanted) < 0.05);
  // Without one, each side is the other's: 0.1 and 0.1 remain.
  const auto alike = search_sizes({.count = 3, .trials_max = 4000}, score);
  for (const auto& size : alike) CHECK(size.encoder_ms == Approx(size.llm_ms));
  CHECK(distance(alike, wanted) >= 0.2 - 1e-9);
  // And none is tilted further than allowed.
  for (const auto& size : search_sizes({.count = 3, .trials_max = 500, .tilt = 0.05}, score))
    CHECK(std::abs(size.llm_ms / size.encoder_ms - 1) <= 0.05 + 1e-9);
}

TEST_CASE("the size search stops when told and returns the best it saw", "[balancer]") {
  double least = 1e9;
  std::int64_t left = 50;
  std::vector<Workload> best;
  const auto found = search_sizes(
      {.count = 8, .seed = 3, .trials_max = 1000, .tilt = 0.2},
      [&](std::span<const Workload> sizes) -> std::optional<double> {
        if (left-- == 0) return std::nullopt;
        const double score = 2 + std::sin(100 * sizes[0].encoder_ms + 37 * sizes[5].llm_ms);
        if (score < least) best.assign(sizes.begin(), sizes.end());
        least = std::min(least, score);
        return score;
      });
  CHECK((found == best));
  CHECK(left == -1);
  CHECK(search_sizes({.count = 2, .trials_max = 10}, [](auto) { return std::nullopt; }).empty());
}

TEST_CASE("the size search begins where it is told", "[balancer]") {
  const std::vector<Workload> start{{0.2, 0.2}, {1, 1}};
  bool first = true;
  search_sizes({.count = 2, .trials_max = 1, .start = start},
               [&](std::span<const Workload> sizes) -> std::optional<double> {
                 if (first) CHECK(std::vector<Workload>(sizes.begin(), sizes.end()) == start);
                 first = false;
                 return 1;
               });
  CHECK_FALSE(first);
}

}  // namespace
}  // namespace troupe::balancer
