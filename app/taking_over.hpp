// Whether nodes of a run whose head was lost may wait for another one, and whether this job is it.
//
// Reads files of the run folder; changes nothing.

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/resuming.hpp"
#include "engine/setup/data_identity.hpp"
#include "runtime/job/job.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/vocabulary/job_progress.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::app {

/// True of a run that nobody ended, whose last sign is not older than `cluster.head_timeout_s` and
/// what a step may take, and that is not to begin anew.
bool may_have_waiting_nodes(const job::Job& job, const ResumeWish& wish);

/// The same for a head that one of them has started to save what they hold. Also of a run that
/// ended so that it can go on, with an incomplete save: by a head that others found and this node
/// did not.
bool may_save_for_nodes(const job::Job& job, const ResumeWish& wish);

/// The job of a run whose nodes a head is to have save what they hold: as its job file says, but
/// what that names need not be on this machine. `file`: the job file. `node_job`: that of the node
/// that asks for it, which says where plug-ins are here; empty: it has none. Errors: not_found: the
/// job file, or a plug-in whose families or formats the job needs; as `job::parse_job`.
Result<job::LoadedJob> load_to_save(const std::filesystem::path& file,
                                    const std::filesystem::path& node_job,
                                    const std::vector<std::string>& overrides);

/// Whether a head whose nodes hold only a part of the model gives that up for the newest
/// checkpoint: there is one, and the job goes back to it by itself. `--resume` is no word for that:
/// it names the run, as the nodes that wait say themselves.
bool goes_back(const job::Job& job, bool has_checkpoint);

/// So long a new head waits for them: they look for it several times a second from the moment on
/// when the old one's silence was noticed.
double gathering_window_s(const job::Cluster& cluster);

/// Nodes run the job as they were told it, on the data that they opened. Errors: invalid_argument:
/// the run's own job file says something else than this one where it matters to them, or the data
/// are others; names the keys.
Status check_same_job(const job::Job& job, const engine::DataIdentity& data,
                      const JobProgress& live);

}  // namespace troupe::app
