// Whether runs bear out the profile that they were planned with, noted beside its file.
//
// A single run may have met a busy hour; several in a row that miss the same way say that the
// profile did, or that the machine has changed.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/iteration/prediction.hpp"
#include "engine/profiling/profile_file.hpp"
#include "engine/setup/job_setup.hpp"
#include "runtime/observe/trace_event.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

inline constexpr std::int64_t kCheckWarmUp = 2;     ///< Steps of a run that do not count.
inline constexpr std::int64_t kCheckStepsMin = 20;  ///< Fewer steps say nothing.
inline constexpr double kCheckBand = 0.15;          ///< A miss is further off than this.
inline constexpr std::size_t kCheckRuns = 2;        ///< So many misses in a row count.

/// What a run found: measured over predicted time of its stages.
struct ProfileNote {
  std::string run;   ///< Its folder.
  std::string date;  ///< `2026-11-23T02:10:57Z`: when it began.
  /// `StoredProfile::measured_at` of the profile that the run used: notes on an older one are void.
  std::string profile;
  double ratio = 1;
  std::int64_t steps = 0;

  friend bool operator==(const ProfileNote&, const ProfileNote&) = default;
};

/// Now, in UTC, as dates are written.
std::string utc_now();

/// The notes on the profile in this file: `mine.json` -> `mine.runs.json`.
std::filesystem::path notes_path(const std::filesystem::path& profile);

/// Oldest first. A file that is missing or damaged holds none: notes are a help, never a reason to
/// end.
std::vector<ProfileNote> load_notes(const std::filesystem::path& profile);

/// Adds a note; it replaces an earlier one of the same run (folder and date). Keeps the newest 16.
/// Writes the file whole or not at all; of two runs that write in the same moment one note may be
/// lost. Errors: io_failed.
Status add_note(const std::filesystem::path& profile, const ProfileNote& note);

/// The last `kCheckRuns` notes on this profile, where all of them miss the same way: further than
/// `kCheckBand` from `runs_ratio`, which runs are known to take for other reasons. Else empty.
std::vector<ProfileNote> disagreement(std::span<const ProfileNote> notes,
                                      const StoredProfile& stored);

/// Median of their ratios (the upper one of two). REQUIRES: not empty.
double ratio_of(std::span<const ProfileNote> notes);

/// "the last 2 runs took 1.33 times as long as it says (runs/a, runs/b)".
std::string describe(std::span<const ProfileNote> notes);

/// What runs will take of a profile that was measured anew because they took `ratio` times what
/// the one `before` says: 1 where the profile was wrong, else what it does not explain (cores that
/// stages share, a crowded machine), so that it is not measured again and again.
double remaining_ratio(const scheduler::Profile& before, const scheduler::Profile& now,
                       double ratio);

/// Compares the steps of a run with the profile. Pure apart from its own state; single owner.
class ProfileCheck {
 public:
  /// A finished step: per stage what the profile said, and what it took. True where the median is
  /// worth noting again: after `kCheckStepsMin` steps, then after twice as many each time.
  bool add(std::span<const double> profile_ms, std::span<const double> measured_ms);

  /// Over the newest steps that count, 1024 at most. REQUIRES: `steps` > 0.
  double median() const;
  std::int64_t steps() const { return steps_; }  ///< That count.

 private:
  std::vector<double> ratios_;  ///< A ring.
  std::int64_t warm_up_ = 0, steps_ = 0, next_ = kCheckStepsMin;
};

/// Holds a run against the profile that it was planned with, and notes beside it what it finds:
/// while it runs, so that a run that is killed says it too. Single owner; writes a small file now
/// and again.
class RunCheck {
 public:
  /// `plan` outlives it. Nothing is compared where costs come from no file, where predictions
  /// follow corrections (`adaptive_correction`), and where stages share `cores` of this machine:
  /// such runs say nothing of the profile.
  /// `began`: when the run did (`utc_now`), whose layouts make one note together.
  RunCheck(const JobSetup& setup, const ParallelPlan& plan, std::int32_t cores, std::string began);

  /// A finished step. A note that cannot be written is left out: it is no reason to end a run.
  void add(const Prediction& prediction, std::span<const observe::TraceEvent> events);

 private:
  const ParallelPlan& plan_;
  std::filesystem::path profile_;  ///< Empty: nothing is compared.
  ProfileNote note_;
  ProfileCheck check_;
};

}  // namespace troupe::engine
