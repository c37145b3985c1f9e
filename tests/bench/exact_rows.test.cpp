#include "tests/bench/exact_rows.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::bench {
namespace {

TEST_CASE("the planner sends hardly more rows between nodes than it must", "[engine]") {
  const auto found = small_batches(0.5, 12);
  CHECK(found.exact > 0);
  CHECK(found.divisible > 0);
  CHECK(found.planned >= found.exact * (1 - 1e-6));
  CHECK(found.planned <= 1.12 * found.exact);
}

}  // namespace
}  // namespace troupe::bench
