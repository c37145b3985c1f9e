#include "tests/torch_catch.hpp"

#include "engine/layout/operator_rule.hpp"

#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("a job on accelerators says which operators it allows, and what that costs", "[engine]") {
  job::Job job = tiny_job();
  CHECK_FALSE(operator_rule(job));  // A CPU's have one order each.
  job.cluster.device = "cuda";
  job.train.dtype = Dtype::bf16;
  auto rule = operator_rule(job);
  REQUIRE(rule);
  CHECK(rule->choice == "deterministic operators");
  CHECK_THAT(rule->why, ContainsSubstring("FlashAttention") && ContainsSubstring("not measured"));
  job.train.dtype = Dtype::fp32;  // Attention goes to another kernel.
  rule = operator_rule(job);
  REQUIRE(rule);
  CHECK_THAT(rule->why, ContainsSubstring("ends the job") && !ContainsSubstring("FlashAttention"));
  job.train.deterministic = false;
  rule = operator_rule(job);
  REQUIRE(rule);
  CHECK(rule->choice == "any operators");
  CHECK_THAT(rule->why, ContainsSubstring("may differ from run to run"));
}

}  // namespace
}  // namespace troupe::engine
