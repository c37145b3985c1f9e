#include "tests/torch_catch.hpp"

#include "engine/profiling/corrected_profile.hpp"

#include <catch2/matchers/catch_matchers_string.hpp>

#include "engine/profiling/nominal_profile.hpp"
#include "engine/profiling/profile_file.hpp"
#include "engine/profiling/profile_run.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::engine {
namespace {

using Catch::Matchers::ContainsSubstring;

scheduler::DeviceSpec h100() { return scheduler::find_device("H100-80G").value(); }

/// A profile of the tiny job, measured here, as if it had been on an H100.
struct MeasuredThere {
  testing::ScratchFolder folder;
  JobSetup setup;
  StoredProfile stored;

  MeasuredThere() {
    auto job = tiny_job();
    job.job.name = "tiny";
    job.job.run_dir = folder / "runs" / "tiny";
    setup = prepare(job).value();
    ProfileOptions options;
    options.file = folder / "mine.json";
    options.tokens_max = 64;
    options.budget_s = 0.5;
    REQUIRE(obtain_profile(setup, options).ok());
    stored = load_profile(options.file).value();
    auto there = setup;
    there.job.cluster.device = "cuda";
    stored.key.software = "LibTorch of then" + profile_key(there).software.substr(
                                                   profile_key(there).software.rfind(", "));
    stored.key.device = "NVIDIA H100 80GB HBM3";
  }

  /// Has the job name it.
  void name(const StoredProfile& profile) {
    setup.job.scheduler.profile = folder / "there.json";
    REQUIRE(save_profile(setup.job.scheduler.profile, profile).ok());
  }

  /// Lays it where the job's own profiles lie.
  std::filesystem::path keep(const std::string& file, const StoredProfile& profile) const {
    const auto path = folder / "runs" / "profiles" / file;
    REQUIRE(save_profile(path, profile).ok());
    return path;
  }
};

TEST_CASE("a named profile of such a device corrects every kind of layer", "[engine]") {
  MeasuredThere there;
  there.name(there.stored);
  const auto made = corrected_profile(there.setup, h100(), {{1, 1}, {2, 1}});
  CHECK(made.refused.empty());
  CHECK(made.measured == there.setup.job.scheduler.profile);
  CHECK(made.measured_on == "NVIDIA H100 80GB HBM3");
  REQUIRE_FALSE(made.kinds.empty());
  for (const auto& kind : made.kinds) {
    CAPTURE(kind.kind);
    CHECK(kind.factor);
  }
  CHECK(made.profile.speeds.optimizer_elements_per_s ==
        there.stored.profile.speeds.optimizer_elements_per_s);
  CHECK(made.profile.speeds.reduce_gigabytes_per_s ==
        there.stored.profile.speeds.reduce_gigabytes_per_s);
  CHECK(made.profile.speeds.network == planned_network());
  CHECK_THAT(corrections_text(made), ContainsSubstring("took on NVIDIA H100 80GB HBM3 (") &&
                                         ContainsSubstring("llm.block x") &&
                                         ContainsSubstring("computed alone: none"));
}

TEST_CASE("a kind of other shapes is computed alone, and said to be", "[engine]") {
  MeasuredThere there;
  for (auto& kind : there.stored.profile.profiles)
    if (kind.kind == "llm.block") kind.parameters += Bytes{8};
  there.name(there.stored);
  const auto made = corrected_profile(there.setup, h100());
  for (const auto& kind : made.kinds) CHECK(kind.factor.has_value() == (kind.kind != "llm.block"));
  CHECK_THAT(corrections_text(made), ContainsSubstring("computed alone: llm.block"));
}

TEST_CASE("a profile of another device, dtype or profiler corrects nothing", "[engine][errors]") {
  MeasuredThere there;
  const auto refused = [&](const StoredProfile& profile) {
    there.name(profile);
    const auto made = corrected_profile(there.setup, h100());
    CHECK((made.profile == computed_profile(there.setup, h100())));
    CHECK(made.measured.empty());
    for (const auto& kind : made.kinds) CHECK_FALSE(kind.factor);
    CHECK_THAT(corrections_text(made),
               ContainsSubstring("no profile that was measured on an H100"));
    return made.refused;
  };
  auto other = there.stored;
  other.key.device = "NVIDIA A40";
  CHECK_THAT(refused(other), ContainsSubstring("measured on NVIDIA A40, not on an H100-80G"));
  other = there.stored;
  other.key.dtype = "bf16";
  CHECK_THAT(refused(other), ContainsSubstring("in bf16, and the job computes in fp64"));
  other = there.stored;
  other.key.software = "LibTorch 2, profiler 1";
  CHECK_THAT(refused(other), ContainsSubstring("measured by profiler 1"));
  other = there.stored;
  other.profile.profiles.clear();
  CHECK_THAT(refused(other), ContainsSubstring("shares no layer"));
}

TEST_CASE("where none is named, the one with most of the model is taken, then the newest",
          "[engine]") {
  MeasuredThere there;
  CHECK(corrected_profile(there.setup, h100()).measured.empty());
  auto stored = there.stored;
  stored.measured_at = "2026-11-20T00:00:00Z";
  there.keep("old.json", stored);
  stored.measured_at = "2026-11-21T00:00:00Z";
  const auto newer = there.keep("a-newer.json", stored);
  stored.measured_at = "2026-11-22T00:00:00Z";
  stored.profile.profiles.pop_back();
  there.keep("part.json", stored);
  stored = there.stored;
  stored.measured_at = "2026-11-23T00:00:00Z";
  stored.key.device = "NVIDIA H200";
  const auto another = there.keep("another.json", stored);
  CHECK(corrected_profile(there.setup, h100()).measured == newer);
  CHECK(corrected_profile(there.setup, scheduler::find_device("H200").value()).measured == another);
}

}  // namespace
}  // namespace troupe::engine
