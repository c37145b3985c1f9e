#include "engine/profiling/profile_quiet.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <utility>

#include "engine/profiling/profile_layers.hpp"
#include "engine/profiling/profile_run.hpp"
#include "tests/engine/fake_machine.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/runtime/data/temp_folder.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::engine {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

constexpr MeasuredRuns::Limits kThree{3, 3, 0};
const Reading kQuiet{10, 10, 1}, kAway{20, 10, 1}, kSlow{15, 15, 1.5};

/// Asks for runs until no more are wanted; the readings come in this order, then the last one
/// again.
std::size_t run_all(MeasuredRuns& runs, QuietWatch& watch, const std::vector<Reading>& readings) {
  do {
    const auto& reading = readings[std::min(runs.count(), readings.size() - 1)];
    runs.add({reading.wall_ms, 0, 0, 0}, reading);
  } while (runs.wants_more(watch));
  return runs.count();
}

TEST_CASE("time away from the core and a slow core are no quiet", "[engine]") {
  const Threads one(1);
  FakeMachine machine;
  QuietWatch watch(machine.clocks(), 0);
  CHECK(watch.fastest_probe_ms() == 1);
  CHECK(watch.quiet(kQuiet));
  CHECK(watch.quiet({100, 95.5, 1.1}));
  CHECK_FALSE(watch.quiet({100, 94, 1}));  // 6 % of its time it did not run.
  CHECK_FALSE(watch.quiet({100, 100, 1.2}));
  CHECK(watch.quiet({0.1, 0.085, 1}));  // 15 us: the clocks themselves.
  CHECK(watch.disturbance(kQuiet) == 1);
  CHECK(watch.disturbance(kAway) == 2);
  CHECK(watch.disturbance({20, 10, 1.5}) == 3);
}

TEST_CASE("a device may slow down by itself, not by half", "[engine]") {
  const Threads one(1);
  FakeMachine machine;
  auto clocks = machine.clocks();
  clocks.pace_max = kDevicePaceMax;
  QuietWatch watch(clocks, 0);
  CHECK(watch.quiet({100, 100, 1.5}));
  CHECK_FALSE(watch.quiet({100, 100, 2}));  // Somebody else has every other moment.
}

TEST_CASE("several operator threads are timed by the wall, and may wait for each other",
          "[engine]") {
  FakeMachine machine;
  machine.share = [](double) { return 0.5; };
  QuietWatch watch(machine.clocks(), 0);
  {
    const Threads one(1);
    const double begin_ms = watch.operator_ms();
    CHECK(watch.operator_ms() - begin_ms == 1);
    CHECK_FALSE(watch.quiet({100, 80, 1}));
  }
  const Threads two(2);
  CHECK(watch.operator_ms() == machine.wall_ms);
  CHECK(watch.quiet({100, 80, 1}));
  CHECK_FALSE(watch.quiet({100, 70, 1}));
}

TEST_CASE("a reading leaves out what ran in between", "[engine]") {
  FakeMachine machine;
  QuietWatch watch(machine.clocks(), 0);
  Reading reading;
  watch.begin(reading);
  machine.work();
  watch.pause(reading);
  for (int i = 0; i < 100; ++i) machine.work();
  machine.pace = [](double) { return 2.0; };
  watch.resume(reading);
  machine.work();
  watch.end(reading);
  CHECK(reading.wall_ms == 1 + 2);
  CHECK(reading.probe_ms == 2);  // The slower one.
}

TEST_CASE("on a quiet machine nothing is repeated", "[engine]") {
  FakeMachine machine;
  QuietWatch watch(machine.clocks(), 1000);
  MeasuredRuns few(kThree), long_ones({3, 7, 25}), short_ones({3, 7, 1000});
  CHECK(run_all(few, watch, {kQuiet}) == 3);
  CHECK(run_all(long_ones, watch, {kQuiet}) == 3);  // 30 ms are enough.
  CHECK(run_all(short_ones, watch, {kQuiet}) == 7);
  CHECK(watch.left_ms() == 1000);
  CHECK(few.repeated() == 0);
}

TEST_CASE("disturbed runs are repeated, and do not count", "[engine]") {
  const Threads one(1);
  FakeMachine machine;
  QuietWatch watch(machine.clocks(), 1000);
  for (const auto& disturbed : {kAway, kSlow}) {
    MeasuredRuns runs(kThree);
    CHECK(run_all(runs, watch, {disturbed, kQuiet, disturbed, kQuiet}) == 5);
    CHECK(runs.repeated() == 2);
    CHECK(runs.medians(watch).forward_ms == 10);
    CHECK(watch.quietness(runs.kept_readings(watch)).disturbed == 0);
  }
  // Paid: the disturbed third and the quiet fourth, each by what the run before it took.
  CHECK(watch.repeat_ms() == 20 + 10 + 15 + 10);
}

TEST_CASE("repetitions end where their time is spent, and the quietest are kept", "[engine]") {
  const Threads one(1);
  FakeMachine machine;
  QuietWatch poor(machine.clocks(), 45), rich(machine.clocks(), 1e6);
  MeasuredRuns paid(kThree), bounded(kThree), mixed(kThree);
  CHECK(run_all(paid, poor, {kAway}) == 3 + 2);  // 45 ms pay for two of 20.
  CHECK(run_all(bounded, rich, {kAway}) == 2 * 3);
  CHECK(rich.quietness(bounded.kept_readings(rich)).disturbed == 3);
  CHECK(run_all(mixed, rich, {{90, 10, 1}, {60, 10, 1}, kSlow, kQuiet, {80, 10, 1}, kAway}) == 6);
  const auto kept = mixed.kept_readings(rich);
  REQUIRE(kept.size() == 3);  // 10, 15 and 20 ms.
  CHECK(mixed.medians(rich).forward_ms == 15);
  CHECK(rich.quietness(kept).disturbed == 2);
}

TEST_CASE("a faster probe shows that earlier runs were slow", "[engine]") {
  const Threads one(1);
  FakeMachine machine;
  machine.pace = [](double) { return 1.5; };
  QuietWatch watch(machine.clocks(), 0), warned(machine.clocks(), 0, 1);
  const std::vector<Reading> readings{kSlow, kSlow};
  CHECK(watch.quietness(readings).disturbed == 0);
  CHECK(warned.quietness(readings).disturbed == 2);  // Known of an earlier profile.
  machine.pace = [](double) { return 1.0; };
  Reading reading;
  watch.begin(reading);
  watch.end(reading);
  CHECK(watch.quietness(readings).disturbed == 2);
}

/// The tiny model's layers on a fake machine.
struct Measured {
  std::vector<scheduler::LayerProfile> profiles;
  std::int64_t repeated = 0;
  double disturbed_share = 0, repeat_ms = 0, wall_ms = 0;
};

Measured measure_on(FakeMachine machine, double repeat_ms_max = 1e5) {
  const Threads one(1);
  const auto setup = prepare(tiny_job()).value();
  QuietWatch watch(machine.clocks(), repeat_ms_max);
  Measured made;
  made.profiles = profile_layers(setup, {100, 2, 64, {}}, watch).value();
  KindQuietness all;
  for (const auto& kind : watch.kinds()) {
    all.kept += kind.kept, all.disturbed += kind.disturbed;
    made.repeated += kind.repeated;
  }
  made.disturbed_share = all.disturbed_share();
  made.repeat_ms = watch.repeat_ms();
  made.wall_ms = machine.wall_ms;
  return made;
}

TEST_CASE("what a passing disturbance met is measured again", "[engine]") {
  const auto quiet = measure_on({});
  CHECK(quiet.repeated == 0);
  CHECK(quiet.repeat_ms == 0);
  CHECK(quiet.disturbed_share == 0);

  // Slow, and sharing its core, so that each ms of work takes 3, for two of the three sizes.
  FakeMachine busy;
  busy.pace = [&](double wall_ms) { return wall_ms < 2 * quiet.wall_ms ? 1.5 : 1; };
  busy.share = [&](double wall_ms) { return wall_ms < 2 * quiet.wall_ms ? 0.5 : 1; };
  const auto disturbed = measure_on(busy);
  CHECK(disturbed.repeated > 0);
  CHECK(disturbed.disturbed_share == 0);
  CHECK((disturbed.profiles == quiet.profiles));

  // Without time for it, the numbers of the busy time stay, and say so.
  const auto hurried = measure_on(busy, 0);
  CHECK(hurried.repeated == 0);
  CHECK(hurried.disturbed_share > 0.1);
  CHECK_FALSE((hurried.profiles == quiet.profiles));
}

TEST_CASE("a machine that is never quiet is measured for a bounded time", "[engine]") {
  const auto quiet = measure_on({});
  FakeMachine busy;
  busy.share = [](double) { return 0.5; };
  const auto never = measure_on(busy, 1000);
  CHECK(never.disturbed_share == 1);
  CHECK(never.repeat_ms <= 1000);
  CHECK(never.repeat_ms > 900);
  // Twice the time, as the thread gets half of it, and the repetitions with their probes.
  CHECK(never.wall_ms < 2 * quiet.wall_ms + 2 * 1000);
}

TEST_CASE("a profile says when the machine was not quiet", "[engine]") {
  const data::TempFolder folder;
  auto job = tiny_job();
  job.job.run_dir = folder.path() / "tiny";
  const auto setup = prepare(job).value();
  FakeMachine quiet, busy;
  busy.share = [](double) { return 0.5; };
  ProfileOptions options;
  options.tokens_max = 64;
  options.budget_s = 2;
  options.clocks = busy.clocks();
  const auto disturbed = obtain_profile(setup, options).value();
  CHECK(disturbed.disturbed_share == 1);
  CHECK(disturbed.repeated > 0);
  REQUIRE(disturbed.warnings.size() == 1);
  CHECK_THAT(disturbed.warnings[0], ContainsSubstring("100 % of the runs that count") &&
                                        ContainsSubstring("stop other programs"));
  const auto stored = load_profile(disturbed.file).value();
  CHECK(disturbed_share(stored) == 1);
  CHECK(repeated(stored) == disturbed.repeated);
  CHECK(stored.measured_at.size() == 20);
  // Whoever uses it later is told, too.
  CHECK(obtain_profile(setup, options).value().warnings == disturbed.warnings);

  options.force = true;
  options.clocks = quiet.clocks();
  const auto better = obtain_profile(setup, options).value();
  CHECK(better.warnings.empty());
  CHECK(better.repeated == 0);
  CHECK(load_profile(better.file).value().probe_ms == Approx(1));

  // A machine that is slow all the time is known by the probe of an earlier profile.
  FakeMachine slow;
  slow.pace = [](double) { return 1.5; };
  options.clocks = slow.clocks();
  CHECK(obtain_profile(setup, options).value().disturbed_share == 1);
}

TEST_CASE("a processor is probed as a profile of it was, no other device is", "[engine]") {
  CHECK(fastest_probe_ms("cpu", 1) > 0);
  CHECK(fastest_probe_ms("cuda", 1) == 0);
}

TEST_CASE("this machine's probe takes time, and its clocks go on", "[engine]") {
  const auto clocks = machine_clocks();
  const double wall_ms = clocks.wall_ms(), processor_ms = clocks.processor_ms();
  CHECK(clocks.probe_ms() > 0);
  CHECK(clocks.wall_ms() > wall_ms);
  CHECK(clocks.processor_ms() > processor_ms);
}

}  // namespace
}  // namespace troupe::engine
