// What `troupe doctor` asks about a job: whether this machine has what it needs.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/doctor/facts.hpp"
#include "app/doctor/finding.hpp"
#include "runtime/job/load_job.hpp"

namespace troupe::app {

/// `job`: what `validate` finds in the job file, which is `file`.
Finding check_job(const job::JobReading& reading, const std::string& file);

/// `model`: whether its state fits into this machine. Nothing where `check_job` finds a problem.
std::vector<Finding> check_fit(const job::LoadedJob& loaded, const std::string& file);

/// `data`: whether its sources open and its media can be looked into.
Finding check_data(const job::Job& job);

/// `run folder` or `checkpoints`, where a job may write it: neither another job's nor anything
/// else's. The folder itself is `probe_folder`'s.
Finding check_is_free(const std::string& name, const job::Job& job, const FolderFacts& facts);

/// `port`: where nodes join, and where figures are shown.
Finding check_ports(const job::Job& job);

/// `key`: what nodes of other machines must show.
Finding check_key(const job::Job& job);

}  // namespace troupe::app
