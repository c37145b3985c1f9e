#include "engine/iteration/planning_budget.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "balancer/microbatches/policies.hpp"

namespace troupe::engine {
namespace {

TEST_CASE("costing a plan takes its samples past their stages, and its tasks", "[engine]") {
  // 20 samples past 2.5 stages each, and 3 microbatches in 5 stages: 2 x 50 + 45 x 15.
  CHECK(costing_work({20, 5, 2, 3}) == 775);
}

TEST_CASE("a search for one llm replica gets its part of a fortieth of the step", "[engine]") {
  CHECK(portfolio_work(4'000, 1, false) == 1'000'000);  // 100 ms.
  CHECK(portfolio_work(4'000, 4, false) == 250'000);
  CHECK(portfolio_work(4'000, 4, true) == 125'000);
  CHECK(portfolio_work(1, 1, false) == 450'000);             // 45 ms at least,
  CHECK(portfolio_work(1'000'000, 1, false) == 5'000'000);   // 500 ms at most,
  CHECK(portfolio_work(1'000'000, 1'000, false) == 30'000);  // 3 ms for each.
}

TEST_CASE("whole plans are compared as far as half of the planning time goes", "[engine]") {
  // Small ones: every policy but `auto`.
  const PlanSize small{20, 5, 2, 3};
  const auto all = compared_policies(1, small, 200);
  CHECK(all.size() + 1 == balancer::policies().size());
  CHECK(all.front() == "tapered");
  CHECK(std::find(all.begin(), all.end(), "auto") == all.end());
  CHECK(compared_policies(1, small, 4).size() == 3);  // Beside the first one.
  CHECK(compared_policies(1, small, 1).empty());
  // 2 x 400 x 2 + 45 x 40 x 8 = 16,000 to cost one; half of 45 ms are 225,000. `tapered` takes
  // 5 x 400 + 10 x 160 and seven times that, 115,600, and `hierarchical` 6 x 400 and four times
  // that, 66,400. Those between them, and those behind, are too much.
  const PlanSize large{400, 40, 20, 8};
  CHECK(compared_policies(1, large, 200) == std::vector<std::string>{"tapered", "hierarchical"});
  // Of 7,200 ms they may take 900,000: two chains for 276,000 each, and 179,200.
  CHECK(
      compared_policies(7'200, large, 200) ==
      std::vector<std::string>{"tapered", "balanced-chain", "deferral-chain", "deferral-exchange"});
  CHECK(compared_policies(1, {204'800, 5'120, 2'560, 8}, 200).empty());
}

}  // namespace
}  // namespace troupe::engine
