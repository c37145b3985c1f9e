#include "balancer/loads/workload.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

namespace troupe::balancer {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("check_workloads names the sample and the field that is wrong", "[balancer][errors]") {
  const std::vector<Workload> nan{{1, 1}, {1, NAN}};
  auto status = check_workloads(nan);
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code == Errc::invalid_argument);
  CHECK(status.error().where == "sample 1");
  CHECK_THAT(status.error().message, ContainsSubstring("llm_ms"));
  CHECK_FALSE(check_workloads(std::vector<Workload>{{-1, 0}}).ok());
  CHECK_FALSE(check_workloads(std::vector<Workload>{{HUGE_VAL, 0}}).ok());
  CHECK_FALSE(check_workloads(std::vector<Workload>{{1e308, 0}, {1e308, 0}}).ok());
  CHECK(check_workloads({}).ok());
}

TEST_CASE("check_group_count refuses counts that are no cluster", "[balancer][errors]") {
  CHECK(check_group_count(1, "buckets").ok());
  CHECK_FALSE(check_group_count(0, "buckets").ok());
  CHECK_FALSE(check_group_count(kGroupCountMax + 1, "buckets").ok());
}

TEST_CASE("spreads are mean, population deviation and maximum", "[balancer]") {
  // Encoder 2 and 4: mean 3, deviation 1, maximum 4.
  const std::vector<Workload> loads{{2, 7}, {4, 7}};
  CHECK(encoder_spread(loads).mean_ms == 3);
  CHECK(encoder_spread(loads).std_ms == 1);
  CHECK(encoder_spread(loads).max_ms == 4);
  CHECK(llm_spread(loads).std_ms == 0);
  CHECK(llm_spread({}).max_ms == 0);
}

TEST_CASE("make_plan finds the samples that changed their microbatch", "[balancer]") {
  const auto plan = make_plan({{2, 0}, {1, 3}}, {{0}, {3, 2, 1}});
  CHECK(plan.encoder == SampleGroups{{0, 2}, {1, 3}});
  CHECK(plan.llm == SampleGroups{{0}, {1, 2, 3}});
  CHECK(plan.deferred == std::vector<std::int32_t>{2});
}

TEST_CASE("a part is what an encoder microbatch gives one llm microbatch", "[balancer]") {
  // Microbatch 0 of the encoder has samples 0 to 3 and feeds llm microbatches 0 and 2, 1 those of
  // samples 4 and 5. Sample 3 has no rows, though its text goes to llm microbatch 1.
  const auto plan = make_plan({{3, 1, 0, 2}, {4, 5}, {}}, {{1, 4}, {3, 5}, {0, 2}});
  CHECK((part_of(plan, {true, true, true, false, true, true}) ==
         std::vector<std::int32_t>{1, 0, 1, 0, 0, 1}));
  // Nobody has rows: one part.
  CHECK((part_of(plan, std::vector<bool>(6, false)) == std::vector<std::int32_t>(6, 0)));
}

TEST_CASE("is_partition notices lost, doubled and foreign samples", "[balancer]") {
  CHECK(is_partition({{0}, {}, {2, 1}}, 3));
  CHECK_FALSE(is_partition({{0}, {1}}, 3));
  CHECK_FALSE(is_partition({{0}, {0, 1}}, 2));
  CHECK_FALSE(is_partition({{0, 2}}, 2));
}

}  // namespace
}  // namespace troupe::balancer
