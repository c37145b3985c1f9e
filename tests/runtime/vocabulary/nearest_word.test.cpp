#include "runtime/vocabulary/nearest_word.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

namespace troupe {
namespace {

TEST_CASE("nearest_word finds the intended name and refuses far ones", "[vocabulary]") {
  const std::vector<std::string> known{"seed", "name", "run_dir"};
  CHECK(nearest_word("sead", known) == "seed");
  CHECK(nearest_word("rundir", known) == "run_dir");
  CHECK(nearest_word("completely_else", known).empty());
  CHECK(nearest_word("", known).empty());
  CHECK(nearest_word("x", {}).empty());
}

}  // namespace
}  // namespace troupe
