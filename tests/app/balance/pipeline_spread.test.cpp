#include "app/balance/pipeline_spread.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>

#include "balancer/distributions.hpp"

namespace troupe::app {
namespace {

using balancer::Workload;
using scheduler::ModulePipeline;

TEST_CASE("the busiest stage counts what freezing leaves", "[app]") {
  // Encoder 6 over two stages, forward and backward of twice that: 9. Llm 4 over one: 12.
  const Workload work{6, 4};
  ModulePipeline shape{.encoder_stages = 2, .llm_stages = 1};
  CHECK(busiest_stage_ms(work, shape) == Catch::Approx(12));
  shape.freeze_llm = true;  // Its inputs' gradients still go to the encoder: 8. The encoder: 9.
  CHECK(busiest_stage_ms(work, shape) == Catch::Approx(9));
  shape.freeze_encoder = true;  // Nothing to train: 3 and 4.
  CHECK(busiest_stage_ms(work, shape) == Catch::Approx(4));
  // On one device both count: 9 + 12.
  CHECK(busiest_stage_ms(work, {.encoder_stages = 2, .llm_stages = 1, .colocated = true}) ==
        Catch::Approx(21));
}

TEST_CASE("a pipeline of twice the stages gets twice the work", "[app]") {
  // Twelve equal samples whose llm decides: over two stages it is twice as fast as over one.
  const std::vector<Workload> work(12, {1, 4});
  const std::vector<std::int64_t> rows(12, 5);
  const std::vector<ModulePipeline> shapes{{.encoder_stages = 1, .llm_stages = 1},
                                           {.encoder_stages = 1, .llm_stages = 2}};
  const auto batches = spread_batch(work, rows, shapes, 3).value();
  REQUIRE(batches.size() == 2);
  CHECK(batches[0].work.size() == 4);
  CHECK(batches[1].work.size() == 8);
  CHECK(batches[0].microbatches == 2);  // Of 2 x 3 in all.
  CHECK(batches[1].microbatches == 4);
  CHECK(batches[1].encoder_rows == std::vector<std::int64_t>(8, 5));
}

TEST_CASE("unequal pipelines finish within a sample of each other", "[app][property]") {
  const auto seed = GENERATE(range(0u, 14u));
  const auto work =
      generate_workloads(balancer::distributions()[seed % 7], 200 + seed, std::uint64_t{seed});
  const std::vector<std::int64_t> rows(work.size(), 1);
  const std::vector<ModulePipeline> shapes{{.encoder_stages = 1, .llm_stages = 1},
                                           {.encoder_stages = 1, .llm_stages = 3},
                                           {.encoder_stages = 2, .llm_stages = 2}};
  const auto batches = spread_batch(work, rows, shapes, 8).value();
  const auto all = balancer::total(work);
  std::size_t samples = 0;
  double most = 0, least = HUGE_VAL, largest = 0;
  for (const auto& sample : work) largest = std::max(largest, sample.llm_ms);
  for (std::size_t p = 0; p < shapes.size(); ++p) {
    samples += batches[p].work.size();
    // The rule balances llm work over speed.
    const double ms =
        balancer::total(batches[p].work).llm_ms * busiest_stage_ms(all, shapes[p]) / all.llm_ms;
    most = std::max(most, ms);
    least = std::min(least, ms);
  }
  CHECK(samples == work.size());
  const double sample_ms = largest / all.llm_ms * busiest_stage_ms(all, shapes[0]);
  CHECK(most - least <= 2 * sample_ms);
}

TEST_CASE("work that costs nothing is spread all the same", "[app]") {
  const std::vector<Workload> work(4, {0, 0});
  const std::vector<std::int64_t> rows(4, 0);
  const auto batches = spread_batch(work, rows, std::vector<ModulePipeline>(2), 2).value();
  CHECK(batches[0].work.size() + batches[1].work.size() == 4);
  CHECK(batches[0].microbatches == 2);
}

TEST_CASE("a bad workload is refused", "[app][errors]") {
  const std::vector<Workload> work{{1, NAN}};
  const auto spread =
      spread_batch(work, std::vector<std::int64_t>{0}, std::vector<ModulePipeline>(1), 1);
  REQUIRE_FALSE(spread.ok());
  CHECK(spread.error().code == Errc::invalid_argument);
}

}  // namespace
}  // namespace troupe::app
