// What differs between two jobs, key by key, for a job that goes on from another one's checkpoint.
//
// Pure.

#pragma once

#include <string>
#include <vector>

#include "runtime/job/job.hpp"

namespace troupe::job {

/// A key and both values as a job file would say them; empty: not there.
struct ChangedKey {
  std::string key;  ///< `train.steps`, `parallel.pipelines[1].stages`.
  std::string before;
  std::string now;

  friend bool operator==(const ChangedKey&, const ChangedKey&) = default;
};

/// Ascending by key.
std::vector<ChangedKey> changed_keys(const Job& before, const Job& now);

/// `train.steps 20 -> 40, cluster.nodes 2 -> 4`; long values are left out.
std::string changes_text(const std::vector<ChangedKey>& changes);

}  // namespace troupe::job
