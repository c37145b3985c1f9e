// Going on from a checkpoint: whether a job may, and with what.
//
// Reads checkpoints; changes nothing.

#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/setup/data_identity.hpp"
#include "engine/setup/job_setup.hpp"
#include "runtime/job/changed_keys.hpp"
#include "runtime/state/checkpoint.hpp"
#include "runtime/vocabulary/head_memory.hpp"
#include "runtime/vocabulary/job_progress.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// Where a job goes on.
struct ResumePoint {
  std::filesystem::path folder;  ///< Of the checkpoint, absolute; empty: none is read.
  JobProgress progress;
  std::vector<job::ChangedKey> changes;  ///< Of the job, since it was saved.
  std::int64_t appended = 0;             ///< Records of the data, since it was saved.
  std::string why = {};                  ///< It begins again by itself; else empty.
  bool is_live = false;                  ///< From its nodes, which have kept their state.
  std::int64_t saved_step = 0;           ///< Of the newest checkpoint; 0: there is none.
  std::int64_t recorded_step = 0;        ///< Where `is_live`: the last one whose records are whole.
  std::vector<SlowNodeNote> slow = {};   ///< Where `is_live`: as the head before knew its nodes.
  NodeChanges node_changes = {};         ///< Where `is_live`: those that it saw.

  bool is_start() const { return folder.empty() && !is_live; }
};

/// What decides which samples a step of this job takes, where it begins.
DataOrder data_order(const job::Job& job, const DataIdentity& data);
/// The same where it may go on.
DataOrder data_order(const job::Job& job, const DataIdentity& data, const ResumePoint& resume);

/// Of the data; 0 where epochs differ.
std::int64_t steps_per_epoch(const DataOrder& order);

/// How a run added gradients up, by its own job file: `cluster.sums`. Empty where that cannot be
/// read, which who goes on from it is told elsewhere.
std::string saved_sums(const std::filesystem::path& job_file);

/// `hash_of_first` of the job's data set.
using HashOfFirst = std::function<std::uint64_t(std::span<const std::int64_t> records)>;

/// Whether a job with these parameters can take up what was saved. Errors: invalid_argument: it is
/// of another model, or other modules are frozen; names the key.
Status check_model(const state::CheckpointManifest& saved,
                   const std::vector<ParameterInfo>& parameters);

/// Layout, nodes, type, schedule, policy, lengths and rates may have changed; the model, what of it
/// trains and the order of the data may not.
///
/// Data may have grown: records appended at the end of sources, and sources behind the last one. An
/// epoch that has begun is finished with the records that it began with; the next one takes all
/// (`ResumePoint::progress.data`).
///
/// Errors: invalid_argument: something that may not has; names the key, both values and the fix.
/// bad_data: the checkpoint's job file cannot be read.
Result<ResumePoint> resume_from(const state::Checkpoint& checkpoint, const JobSetup& setup,
                                const DataIdentity& data, const HashOfFirst& hash_of_first);

}  // namespace troupe::engine
