// The supervisor's values among random events, without processes. TROUPE_COORDINATION_EVENTS: how
// many. Another seed by TROUPE_SEED; it is told.

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <sstream>

#include "tests/actors/coordinated_job.hpp"

namespace troupe::actors {
namespace {

constexpr std::int64_t kEvents = 1'000'000;
constexpr std::int64_t kEventsOfAJob = 500;
constexpr std::int64_t kSeed = 20785;  // The same every day: a failure is a change's.

std::int64_t number_in(const char* variable, std::int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

/// Left to itself, a job trains on, waits for nodes, or ends. Returns the number of events.
std::int64_t settle(CoordinatedJob& job) {
  std::int64_t count = 0;
  const std::int64_t before = job.recorded();
  while (!job.has_ended() && !job.waits_for_nodes() && job.recorded() == before) {
    if (job.go_on() && ++count < 1000) continue;
    FAIL("stuck after " << count << " quiet events, phase " << static_cast<int>(job.job.phase()));
  }
  return count;
}

TEST_CASE("random events never make the values forget, repeat or wait for ever",
          "[coordination][property]") {
  const auto seed = static_cast<std::uint64_t>(number_in("TROUPE_SEED", kSeed));
  const std::int64_t all = number_in("TROUPE_COORDINATION_EVENTS", kEvents);
  Lived lived;
  std::int64_t count = 0;
  for (std::uint64_t episode = 0; count < all; ++episode) {
    INFO("TROUPE_SEED=" << seed << ", episode " << episode);
    std::mt19937_64 draw(seed * 1'000'003 + episode);
    const std::int64_t steps = 1 + static_cast<std::int64_t>(draw() % 12);
    CoordinatedJob job(draw, lived, steps);
    for (std::int64_t left = kEventsOfAJob; left > 0 && !job.has_ended(); --left, ++count) {
      const std::int64_t losses = lived.losses;
      if (draw() % 100 < 12 || !job.go_on()) job.disturb();
      if (lived.losses > losses && draw() % 4 == 0) count += settle(job);
    }
    count += settle(job);
    if (job.recorded() == steps) ++lived.done;
  }
  std::ostringstream text;
  text << count << " events: " << lived.steps << " steps, " << lived.layouts << " layouts, "
       << lived.losses << " losses borne, " << lived.joins << " joins, " << lived.leaves
       << " leaves, " << lived.heads << " heads replaced, " << lived.done << " jobs done";
  WARN(text.str());
  // Else the events tell nothing.
  CHECK(lived.steps > all / 100);
  CHECK(lived.losses > all / 1000);
  CHECK(lived.leaves > all / 10'000);
  CHECK(lived.heads > all / 10'000);
  CHECK(lived.done > all / 10'000);
}

}  // namespace
}  // namespace troupe::actors
