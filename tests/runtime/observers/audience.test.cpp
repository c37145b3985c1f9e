#include "runtime/observers/audience.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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

TEST_CASE("a part of other values than its rows say is left out and told of once", "[observers]") {
  Audience audience;
  Watch watch;
  audience.listeners().add(1, watch);
  REQUIRE(audience.begins(1));
  const std::vector<float> numbers(4);
  Observed part;
  part.step = 1;
  part.module = "vision";
  part.ids = {"a"};
  part.first_rows = {0};
  part.width = 2;
  part.values = {nullptr, numbers.data(), numbers.size(), Dtype::fp32};
  for (const std::int64_t rows : {3, 1, 2}) {
    part.rows = {rows};
    audience.show(std::make_shared<const Observed>(part));
  }
  const auto seen = audience.listeners().take(1);
  REQUIRE((seen && seen->part));
  CHECK(seen->part->rows == std::vector<std::int64_t>{2});  // By hand: 2 x 2 are 4.
  CHECK_FALSE(audience.listeners().take(1));
  const auto troubles = audience.take_tally().troubles;
  REQUIRE(troubles.size() == 1);
  CHECK(troubles.front().starts_with("observers do not see rows of 'vision' where "));
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
