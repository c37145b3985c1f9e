#include "runtime/observers/audience.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::observers {
namespace {

TEST_CASE("what is noted again and again is told once", "[observers]") {
  Audience audience;
  audience.note("nothing is shown of vision");
  audience.note("nothing is shown of audio");
  audience.note("nothing is shown of vision");
  CHECK(audience.take_tally().troubles ==
        std::vector<std::string>{"nothing is shown of vision", "nothing is shown of audio"});
  audience.note("nothing is shown of audio");
  CHECK(audience.take_tally().troubles.empty());
}

TEST_CASE("a trouble of several nodes is one", "[observers]") {
  Tally all;
  all.add({1, 0, {"a"}});
  all.add({2, 3, {"b", "a"}});
  CHECK(all.shown == 3);
  CHECK(all.dropped == 3);
  CHECK(all.troubles == std::vector<std::string>{"a", "b"});
}

}  // namespace
}  // namespace troupe::observers
