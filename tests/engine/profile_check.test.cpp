#include "engine/profiling/profile_check.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <thread>

#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/profile_run.hpp"
#include "tests/engine/fake_machine.hpp"
#include "tests/engine/measured_events.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/runtime/data/temp_folder.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::engine {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using Times = std::vector<double>;

bool add(ProfileCheck& check, const Times& profile_ms, const Times& measured_ms) {
  return check.add(profile_ms, measured_ms);
}

TEST_CASE("a run is held against its profile by the median of many steps", "[engine]") {
  ProfileCheck check;
  CHECK_FALSE(add(check, {10, 10}, {0, 0}));  // A step without samples: not even warming up.
  for (int i = 0; i < kCheckWarmUp; ++i) CHECK_FALSE(add(check, {10, 10}, {90, 90}));
  CHECK(check.steps() == 0);
  for (int i = 0; i < kCheckStepsMin - 1; ++i) CHECK_FALSE(add(check, {10, 30}, {10, 42}));
  CHECK(add(check, {10, 0}, {50, 50}));  // A hiccup; the second stage has nothing to compare.
  CHECK(check.steps() == kCheckStepsMin);
  CHECK(check.median() == Approx(1.3));
  // Then after twice as many; the newest 1024 count.
  for (int i = 0; i < kCheckStepsMin - 1; ++i) CHECK_FALSE(add(check, {10, 30}, {10, 42}));
  CHECK(add(check, {10, 30}, {10, 42}));
  for (int i = 0; i < 1024; ++i) add(check, {10, 10}, {16, 16});
  CHECK(check.median() == Approx(1.6));
}

ProfileNote note(const std::string& run, double ratio, const std::string& profile = "then") {
  return {run, "2026-11-23T02:10:57Z", profile, ratio, 20};
}

TEST_CASE("runs that miss the same way disagree, a single odd one does not", "[engine]") {
  StoredProfile stored;
  stored.measured_at = "then";
  const auto missed = [&](const std::vector<ProfileNote>& notes) {
    return disagreement(notes, stored).size();
  };
  CHECK(missed({}) == 0);
  CHECK(missed({note("a", 1.33)}) == 0);
  CHECK(missed({note("a", 1.33), note("b", 1.33)}) == 2);
  CHECK(missed({note("a", 0.7), note("b", 0.8)}) == 2);
  CHECK(missed({note("a", 1.33), note("b", 1.14)}) == 0);  // Within the band.
  CHECK(missed({note("a", 1.33), note("b", 0.7)}) == 0);   // The other way.
  CHECK(missed({note("a", 1.33), note("b", 1.0), note("c", 1.33)}) == 0);
  CHECK(missed({note("a", 1.0), note("b", 1.2), note("c", 1.33)}) == 2);
  // Notes on an older profile are void.
  CHECK(missed({note("a", 1.33, "before"), note("b", 1.33)}) == 0);
  // Runs are known to take 1.3 times as long, for reasons of their own.
  stored.runs_ratio = 1.3;
  CHECK(missed({note("a", 1.33), note("b", 1.33)}) == 0);
  CHECK(missed({note("a", 1.0), note("b", 1.0)}) == 2);
  CHECK_THAT(describe(std::vector{note("runs/a", 1.2), note("runs/b", 1.33)}),
             ContainsSubstring("the last 2 runs took 1.33 times") &&
                 ContainsSubstring("(runs/a, runs/b)"));
}

TEST_CASE("notes are kept beside the profile, the newest of them", "[engine]") {
  const data::TempFolder folder;
  const auto file = folder.path() / "mine.json";
  CHECK(notes_path(file) == folder.path() / "mine.runs.json");
  CHECK(load_notes(file).empty());
  REQUIRE(add_note(file, note("a", 1.25)).ok());
  REQUIRE(add_note(file, note("a", 1.5)).ok());  // The same run, later.
  CHECK((load_notes(file) == std::vector{note("a", 1.5)}));
  // A later run in the same folder is another one.
  auto again = note("a", 1.75);
  again.date = "2026-11-23T03:10:57Z";
  REQUIRE(add_note(file, again).ok());
  CHECK(load_notes(file).size() == 2);
  for (int i = 0; i < 20; ++i) REQUIRE(add_note(file, note("r" + std::to_string(i), 1)).ok());
  CHECK(load_notes(file).size() == 16);
  CHECK(load_notes(file).back().run == "r19");
  CHECK(add_note("/proc/none/p.json", note("a", 1)).error().code == Errc::io_failed);
  for (const char* damaged : {"", "{", "[1]", "{\"runs\": [{\"run\": 1}]}", "{\"runs\": 3}"}) {
    std::ofstream(notes_path(file)) << damaged;
    CHECK(load_notes(file).empty());
  }
}

TEST_CASE("runs that note and measure at once leave whole files", "[engine]") {
  const data::TempFolder folder;
  const auto file = folder.path() / "mine.json";
  StoredProfile stored;
  stored.measured_at = "then";
  const auto write = [&](const std::string& run) {
    for (int i = 0; i < 50; ++i) {
      static_cast<void>(add_note(file, note(run + std::to_string(i), 1.25)));
      static_cast<void>(save_profile(file, stored));
    }
  };
  std::thread first(write, "first"), second(write, "second");
  first.join();
  second.join();
  CHECK((load_profile(file).value() == stored));
  CHECK(load_notes(file).size() == 16);
  // Nothing else is left behind.
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 2);
}

TEST_CASE("a profile measured anew explains what runs took, or not", "[engine]") {
  const auto of = [](double ms) {
    scheduler::Profile profile;
    profile.profiles = {{"llm.block", {}, scheduler::CostOrigin::measured, {}, {}}};
    for (const TokenCount tokens : {16, 32, 64})
      profile.profiles[0].points.push_back({tokens, {ms, ms, 0, 0}, {}});
    return profile;
  };
  CHECK(remaining_ratio(of(4), of(3), 0.75) == 1);
  CHECK(remaining_ratio(of(4), of(4.1), 1.1) == 1);
  CHECK(remaining_ratio(of(4), of(4), 1.5) == 1.5);
  CHECK(remaining_ratio(of(4), of(5), 2.0) == Approx(1.6));
  CHECK(remaining_ratio(of(4), {}, 1.5) == 1.5);
}

/// The tiny job's profile on a fake machine, at its default place.
struct Checked {
  data::TempFolder folder;
  JobSetup setup;
  FakeMachine machine;
  ProfileOptions options;

  Checked() {
    auto job = tiny_job();
    job.job.run_dir = folder.path() / "tiny";
    setup = prepare(job).value();
    options.tokens_max = 64;
    options.budget_s = 2;
    options.clocks = machine.clocks();
  }

  ObtainedProfile obtain() { return obtain_profile(setup, options).value(); }

  void note_runs(const ObtainedProfile& profile, const Times& ratios) {
    for (std::size_t i = 0; i < ratios.size(); ++i)
      REQUIRE(add_note(profile.file,
                       note("run" + std::to_string(++runs_), ratios[i], profile.measured_at))
                  .ok());
  }

 private:
  int runs_ = 0;
};

TEST_CASE("a profile that runs disagree with is measured anew", "[engine]") {
  Checked job;
  job.machine.pace = [](double) { return 1.5; };
  const auto slow = job.obtain();
  job.note_runs(slow, {0.66});
  CHECK(job.obtain().reused);  // A single one may be odd.
  job.note_runs(slow, {1.0, 0.67});
  CHECK(job.obtain().reused);
  job.note_runs(slow, {0.67});
  job.machine.pace = [](double) { return 1.0; };
  const auto anew = job.obtain();
  CHECK_FALSE(anew.reused);
  CHECK_THAT(anew.reason, ContainsSubstring("the last 2 runs took 0.67 times") &&
                              ContainsSubstring("run3, run4"));
  CHECK(anew.warnings.empty());
  CHECK_FALSE((anew.profile == slow.profile));
  CHECK(load_profile(anew.file).value().runs_ratio == 1);
  CHECK(load_notes(anew.file).empty());
  CHECK(job.obtain().reused);
}

TEST_CASE("what measuring anew does not explain is not measured again and again", "[engine]") {
  Checked job;
  job.options.degrees = {{2, 1}};
  const auto first = job.obtain();
  job.options.degrees.clear();
  job.note_runs(first, {1.5, 1.5});
  const auto anew = job.obtain();
  CHECK_FALSE(anew.reused);
  CHECK(anew.profile.profiles.size() == first.profile.profiles.size());  // Its shards too.
  REQUIRE(anew.warnings.size() == 1);
  CHECK_THAT(anew.warnings[0], ContainsSubstring("still take 1.50 times as long"));
  job.note_runs(anew, {1.5, 1.55});
  CHECK(job.obtain().reused);
  job.note_runs(anew, {1.0, 1.0});  // The reason has gone.
  CHECK_FALSE(job.obtain().reused);
}

TEST_CASE("a named profile that runs disagree with is kept, with a warning", "[engine]") {
  Checked job;
  job.options.file = job.folder.path() / "mine.json";
  const auto first = job.obtain();
  job.note_runs(first, {1.4, 1.4});
  const auto kept = job.obtain();
  CHECK(kept.reused);
  CHECK((kept.profile == first.profile));
  REQUIRE(kept.warnings.size() == 1);
  CHECK_THAT(kept.warnings[0],
             ContainsSubstring("took 1.40 times as long") && ContainsSubstring("--force"));
  job.options.force = true;
  CHECK_FALSE(job.obtain().reused);
  job.options.force = false;
  CHECK(job.obtain().warnings.empty());
}

/// Steps of a run in which each of the plan's stages took `ratio` times what the profile says.
void run_steps(RunCheck& check, const ParallelPlan& plan, int steps, double ratio) {
  Prediction prediction;
  prediction.profile_stage_ms.assign(plan.stages.size(), 100);
  std::vector<observe::TraceEvent> events;
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    events.push_back(slice(ActionKind::forward, static_cast<std::int32_t>(s),
                           static_cast<std::int64_t>(100 * ratio)));
  for (int i = 0; i < steps; ++i) check.add(prediction, events);
}

TEST_CASE("a run notes what it found while it runs", "[engine]") {
  Checked job;
  auto& setup = job.setup;
  const auto profile = use_profile(setup, job.options).value();
  const auto plan = make_parallel_plan(setup).value();
  const auto notes_of = [&](std::int32_t cores, int steps) {
    std::filesystem::remove(notes_path(profile.file));
    RunCheck check(setup, plan, cores, utc_now());
    run_steps(check, plan, steps, 1.4);
    return load_notes(profile.file);
  };
  CHECK(notes_of(4, 21).empty());
  const auto notes = notes_of(4, 60);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].run == setup.job.job.run_dir.string());
  CHECK(notes[0].profile == profile.measured_at);
  CHECK(notes[0].ratio == Approx(1.4));
  CHECK(notes[0].steps == 40);
  // Four stages on three cores say nothing of the profile, nor do corrected predictions, nor costs
  // from elsewhere.
  CHECK(notes_of(3, 60).empty());
  setup.job.balancer.adaptive_correction = true;
  CHECK(notes_of(4, 60).empty());
  setup.job.balancer.adaptive_correction = false;
  setup.profile = {};
  CHECK(notes_of(4, 60).empty());
}

}  // namespace
}  // namespace troupe::engine
