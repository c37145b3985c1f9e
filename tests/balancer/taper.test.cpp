#include "balancer/microbatches/taper.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "balancer/microbatches/partition.hpp"
#include "tests/balancer/instances.hpp"

namespace troupe::balancer {
namespace {

TEST_CASE("a taper grows from both ends to full size", "[balancer]") {
  // From the front 1 - 0.75 (1, 1/4, 0) = 0.25, 0.8125, 1; from the back 1 - 0.5 = 0.5 alone.
  const Taper taper{.first = 0.25, .rise = 2, .last = 0.5, .fall = 1};
  CHECK((taper_sizes(taper, 4) ==
         std::vector<Workload>{{0.25, 0.25}, {0.8125, 0.8125}, {1, 1}, {0.5, 0.5}}));
  // Where both ends meet, the smaller size counts.
  CHECK((taper_sizes(taper, 1) == std::vector<Workload>{{0.25, 0.25}}));
}

TEST_CASE("one stage needs no taper", "[balancer]") {
  CHECK((default_taper(1) == Taper{}));
  CHECK((taper_sizes({}, 3) == std::vector<Workload>{{1, 1}, {1, 1}, {1, 1}}));
}

TEST_CASE("microbatches follow their sizes", "[balancer]") {
  // Eight equal samples over sizes 1 : 2 : 1 are 2, 4, 2.
  const auto groups = tapered_partition(std::vector<Workload>(8, {1, 1}),
                                        std::vector<Workload>{{0.5, 0.5}, {1, 1}, {0.5, 0.5}}, {});
  CHECK(groups[0].size() == 2);
  CHECK(groups[1].size() == 4);
  CHECK(groups[2].size() == 2);
}

TEST_CASE("both workloads follow the sizes to a hundredth", "[balancer][property]") {
  const auto seed = GENERATE(range(0u, 20u));
  CAPTURE(seed);
  const auto samples = equally_binding(log_normal_workloads(seed, 16 * 16));
  const auto sizes = taper_sizes(default_taper(4), 16);
  double parts = 0;
  for (const auto& size : sizes) parts += size.encoder_ms;
  const auto groups = tapered_partition(samples, sizes, {});
  CHECK(is_partition(groups, samples.size()));
  const auto loads = group_loads(samples, groups);
  const double share = total(samples).encoder_ms / parts;
  for (std::size_t g = 0; g < loads.size(); ++g) {
    CHECK(loads[g].encoder_ms <= 1.01 * sizes[g].encoder_ms * share);
    CHECK(loads[g].llm_ms <= 1.01 * sizes[g].llm_ms * share);
  }
}

}  // namespace
}  // namespace troupe::balancer
