#include "runtime/vocabulary/joined.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe {
namespace {

using Words = std::vector<std::string>;

TEST_CASE("words are joined by commas, the last one by what is asked for", "[vocabulary]") {
  CHECK(joined(Words{}).empty());
  CHECK(joined(Words{"a", "b", "c"}) == "a, b, c");
  CHECK(joined(Words{"a", "b", "c"}, " or ") == "a, b or c");
  CHECK(joined(std::vector<std::int32_t>{0, 1, 2}) == "0, 1, 2");
  CHECK(joined_by_and(Words{}).empty());
  CHECK(joined_by_and(Words{"a"}) == "a");
  CHECK(joined_by_and(Words{"a", "b"}) == "a and b");
  CHECK(joined_by_and(Words{"a", "b", "c"}) == "a, b and c");
}

TEST_CASE("of many words the first are named and the others counted", "[vocabulary]") {
  CHECK(joined_up_to(2, Words{}).empty());
  CHECK(joined_up_to(2, Words{"a", "b"}) == "a, b");
  CHECK(joined_up_to(2, Words{"a", "b", "c", "d", "e"}) == "a, b and 3 others");
  CHECK(joined_up_to(1, Words{"a", "b"}, "more") == "a and 1 more");
}

}  // namespace
}  // namespace troupe
