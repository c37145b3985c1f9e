// Whether a run trained every sample of the order exactly once, told from its own record.
//
// Pure apart from reading the data set's list, which is open.

#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/data/batches/epochs.hpp"
#include "runtime/data/reading/options.hpp"
#include "runtime/data/samples/dataset.hpp"

namespace troupe::engine {

struct SampleAudit {
  std::vector<std::string> trained_twice;  ///< Ids, more often than their epochs allow; ascending.
  std::vector<std::string> never;          ///< Of finished steps: neither trained nor bad.

  /// Between the first and the last step: nobody knows what these trained. Ascending.
  std::vector<std::int64_t> missing_steps = {};

  bool is_clean() const { return trained_twice.empty() && never.empty() && missing_steps.empty(); }
};

/// `trained`: per finished step the ids that it trained; none where it was skipped, and then
/// nothing is asked of its samples. `bad`: ids that were dropped. A sample that stands in a step of
/// another batch counts as trained too often. `epochs`: what they took, the newest all of
/// `dataset`. Cost: steps x batch, and an epoch's order per epoch.
SampleAudit audit_samples(const std::map<std::int64_t, std::vector<std::string>>& trained,
                          const std::set<std::string>& bad, const data::Dataset& dataset,
                          const data::DataOptions& options, const data::Epochs& epochs,
                          std::int64_t batch_size);

}  // namespace troupe::engine
