#include "runtime/door/refusal_log.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::door {
namespace {

using std::chrono::seconds;

TEST_CASE("of many refused connections a line in ten seconds is told, with their number",
          "[door]") {
  RefusalLog log;
  const RefusalLog::Time start{};
  CHECK(log.refused("10.0.0.7:1", "has no key", start) ==
        "refused a connection from 10.0.0.7:1: it has no key");
  for (int i = 0; i < 500; ++i)
    CHECK_FALSE(log.refused("10.0.0.7:2", "has no key", start + seconds(9)));
  CHECK(log.refused("10.0.0.8:3", "has another key", start + seconds(10)) ==
        "refused a connection from 10.0.0.8:3: it has another key (and 500 others since the last "
        "line)");
  CHECK(log.refused("10.0.0.8:4", "has another key", start + seconds(30)) ==
        "refused a connection from 10.0.0.8:4: it has another key");
  CHECK(log.count() == 503);
}

}  // namespace
}  // namespace troupe::door
