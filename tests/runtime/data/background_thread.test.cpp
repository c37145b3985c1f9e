#include "runtime/data/batches/background_thread.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <thread>

namespace troupe::data {
namespace {

TEST_CASE("only the calling thread goes to the background") {
  const int before = getpriority(PRIO_PROCESS, 0);
  int inside = 0, twice = 0;
  std::thread([&] {
    run_in_background();
    inside = getpriority(PRIO_PROCESS, 0);
    run_in_background();
    twice = getpriority(PRIO_PROCESS, 0);
  }).join();
  CHECK(inside == std::min(19, before + 10));
  CHECK(twice == inside);
  CHECK(getpriority(PRIO_PROCESS, 0) == before);
}

}  // namespace
}  // namespace troupe::data
