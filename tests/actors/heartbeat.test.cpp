#include "actors/link/heartbeat.hpp"

#include <catch2/catch_test_macros.hpp>

#include "actors/node/stall_watch.hpp"
#include "runtime/job/job.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

constexpr Time kStart{1h};

TEST_CASE("a sign of life is due at once and then once per interval", "[actors]") {
  Pace pace;
  CHECK(pace.due(kStart, 500ms));
  CHECK_FALSE(pace.due(kStart + 499ms, 500ms));
  CHECK(pace.due(kStart + 600ms, 500ms));
  CHECK_FALSE(pace.due(kStart + 1000ms, 500ms));  // 500 ms after the last one, not after the first.
  CHECK(pace.due(kStart + 1100ms, 500ms));
}

TEST_CASE("a peer is silent once nothing was heard for longer than the limit", "[actors]") {
  Silence silence;
  Time now = kStart;
  const auto pass = [&](int looks) {
    bool silent = false;
    for (int i = 0; i < looks; ++i) silent = silence.pass(now += 200ms, 1s);
    return silent;
  };
  CHECK_FALSE(pass(6));  // The first look starts the clock: five more are 1 s, not longer.
  CHECK(pass(1));
  CHECK(silence.last_heard() == Time{});
  silence.heard(now);
  const Time heard = now;
  CHECK_FALSE(pass(5));
  CHECK(pass(1));
  CHECK(silence.last_heard() == heard);
}

TEST_CASE("of the time between two looks only what follows a word is silence", "[actors]") {
  Silence silence;
  CHECK_FALSE(silence.pass(kStart, 900ms));
  silence.heard(kStart + 150ms);
  for (auto look = 200ms; look <= 1000ms; look += 200ms)
    CHECK_FALSE(silence.pass(kStart + look, 900ms));
  CHECK(silence.pass(kStart + 1200ms, 900ms));
}

TEST_CASE("a listener that was held up itself does not blame its peers", "[actors]") {
  Silence silence;
  CHECK_FALSE(silence.pass(kStart, 1s));
  CHECK_FALSE(silence.pass(kStart + 10min, 1s));  // Counts as 400 ms.
  silence.heard(kStart + 10min);                  // What was waiting to be read.
  CHECK_FALSE(silence.pass(kStart + 20min, 1s));
  CHECK_FALSE(silence.pass(kStart + 30min, 1s));
  CHECK(silence.pass(kStart + 40min, 1s));
}

TEST_CASE("a job looks at the time at least as often as it gives signs of life", "[actors]") {
  job::Cluster cluster;
  CHECK(look_interval(cluster.heartbeat_interval_s) == kLookInterval);
  cluster.heartbeat_interval_s = 30;
  CHECK(look_interval(cluster.heartbeat_interval_s) == kLookInterval);
  cluster.heartbeat_interval_s = 0.05;
  CHECK(look_interval(cluster.heartbeat_interval_s) == 50ms);
  cluster.heartbeat_interval_s = 1e-9;
  CHECK(look_interval(cluster.heartbeat_interval_s) == 10ms);
}

TEST_CASE("by default a silent peer is found, and all ends, well within five seconds", "[actors]") {
  const job::Cluster cluster;
  // Found at the first look after the tolerance; the others leave within a second of hearing it.
  CHECK(seconds(cluster.heartbeat_timeout_s) + look_interval(cluster.heartbeat_interval_s) + 1s <
        5s);
  // Several signs must be missing: one may be late on a crowded machine.
  CHECK(cluster.heartbeat_timeout_s >= 5 * cluster.heartbeat_interval_s);
}

TEST_CASE("a stall is told after 30 s and at every doubling", "[actors]") {
  StallWatch stalls;
  CHECK_FALSE(stalls.overdue(29s));
  CHECK(stalls.overdue(30s));
  CHECK_FALSE(stalls.overdue(59s));
  CHECK(stalls.overdue(61s));
  CHECK_FALSE(stalls.overdue(121s));
  CHECK(stalls.overdue(122s));
  stalls.ended(200s);
  CHECK_FALSE(stalls.overdue(1999s));  // Steps of this job may take long: ten times the longest.
  CHECK(stalls.overdue(2000s));
  CHECK_FALSE(stalls.overdue(2001s));
  stalls.begun();
  CHECK_FALSE(stalls.overdue(1999s));
  CHECK(stalls.overdue(2000s));
}

TEST_CASE("a stall is hopeless after its limit and ten times the longest step", "[actors]") {
  StallWatch stalls;
  CHECK_FALSE(stalls.hopeless(3600s, 3600s));
  CHECK(stalls.hopeless(3601s, 3600s));
  stalls.ended(400s);
  CHECK_FALSE(stalls.hopeless(4000s, 3600s));
  CHECK(stalls.hopeless(4001s, 3600s));
}

TEST_CASE("a message may be on its way for three times the longest step, and for 30 s in the first",
          "[actors]") {
  StallWatch stalls;
  CHECK(stalls.message_bound(6s) == 30s);
  CHECK(stalls.message_bound(40s) == 40s);
  stalls.ended(1s);
  CHECK(stalls.message_bound(6s) == 6s);
  stalls.ended(5s);
  stalls.ended(2s);
  CHECK(stalls.message_bound(6s) == 15s);
}

}  // namespace
}  // namespace troupe::actors
