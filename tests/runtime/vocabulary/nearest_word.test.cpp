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

TEST_CASE("the fix of an unknown name is the near one or all that are known", "[vocabulary]") {
  const std::vector<std::string> known{"seed", "name", "run_dir"};
  CHECK(name_fix("sead", known) == "did you mean `seed`?");
  CHECK(name_fix("completely_else", known) == "use one of seed, name, run_dir");
  CHECK(name_fix("x", {}).empty());
  const auto many = name_fix("zzzzzzzz", std::vector<std::string>(1000, "name"));
  CHECK(many.starts_with("use one of name, name"));
  CHECK(many.ends_with(", ..."));
  CHECK(many.size() < 200);
}

}  // namespace
}  // namespace troupe
