#include "runtime/vocabulary/first_line.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe {
namespace {

TEST_CASE("of what is said over many lines the first is told", "[vocabulary]") {
  CHECK(first_line("no room\nException raised from alloc\nframe #0") == "no room");
  CHECK(first_line("no room") == "no room");
  CHECK(first_line("\nframe #0").empty());
  CHECK(first_line("").empty());
}

}  // namespace
}  // namespace troupe
