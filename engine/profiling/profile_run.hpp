// Profiles of a job's layers on the device at hand: found as a file, or measured and written.
//
// What planner, simulator and balancer know about time comes from here. Reads and writes files,
// and keeps one core busy while it measures; one measurement at a time per process.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/profiling/profile_file.hpp"
#include "engine/profiling/profile_quiet.hpp"
#include "engine/setup/job_setup.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/cost/profile.hpp"

namespace troupe::engine {

/// Time for repeating what was disturbed, as a share of the time for measuring. A quiet machine
/// needs none of it.
inline constexpr double kRepeatShare = 0.5;

struct ProfileOptions {
  /// Where the profile lies. Empty: `scheduler.profile` of the job, else `default_profile_path`.
  std::filesystem::path file;
  MeasuringClocks clocks = machine_clocks();
  bool force = false;    ///< Measure even if a file fits.
  double budget_s = 20;  ///< Time for measuring; larger sizes are left out when it is spent. > 0.
  /// Disturbed repetitions are repeated for `kRepeatShare` of it at most, in addition.
  double point_s_max = 2;  ///< A size whose forward and backward take longer is the last one.
  TokenCount tokens_max = 16384;
  /// Besides one device per stage: see profile_shards.hpp. Added to a file that lacks them.
  std::vector<scheduler::Parallelism> degrees;
  /// As `LayerProfileOptions::on_progress`.
  std::function<void(const std::string& kind, double share)> on_progress;
};

struct ObtainedProfile {
  scheduler::Profile profile;
  std::filesystem::path file;
  bool reused = false;      ///< The file was there and fits: nothing was measured.
  std::string reason;       ///< Why it was measured; empty where `reused`.
  double measured_s = 0;    ///< Time that measuring took.
  std::string measured_at;  ///< As `StoredProfile` has it, like the next three.
  double probe_ms = 0;
  double disturbed_share = 0;
  std::int64_t repeated = 0;
  /// What keeps its predictions from holding, with the fix: a busy machine, runs that disagree.
  std::vector<std::string> warnings;
};

/// What a profile of this job on this machine is valid for. A profile is made anew when any of it
/// has changed (after DFLOP, 3.2.3, whose own condition is the model alone; here the file may
/// outlive a change of device, LibTorch, dtype or threads): layers and their shapes, names, CPU,
/// software, dtype, operator threads. Freezing, data, batch and layout do not matter.
ProfileKey profile_key(const JobSetup& setup);

/// `profiles/JOB-HASH.json` beside the job's run folder; the hash is that of the key.
std::filesystem::path default_profile_path(const JobSetup& setup);

/// The job's profile: the file if it fits, else measured now and written there; measured anew too
/// where the last runs disagree with it (`disagreement`). A file named by the user that fits
/// another key, or that runs disagree with, is never overwritten without `force`. Sets LibTorch's
/// operator threads to those of the job's devices while it measures.
///
/// Cost: reading a file, or about `budget_s`.
///
/// Errors:
/// - bad_data: the named file is no profile; invalid_argument: it is of another model, device ...
/// - unavailable: something must be measured, and this machine has no such device.
/// - io_failed: the file cannot be written. As `models::make_layer` and `profile_shard`.
Result<ObtainedProfile> obtain_profile(const JobSetup& setup, const ProfileOptions& options = {});

/// `obtain_profile`, and gives its costs and where they are from to `setup`: plans are then
/// predicted.
/// Errors: as `obtain_profile` and `planning_costs`.
Result<ObtainedProfile> use_profile(JobSetup& setup, const ProfileOptions& options = {});

}  // namespace troupe::engine
