#include "engine/run/sample_audit.hpp"

namespace troupe::engine {

SampleAudit audit_samples(const std::map<std::int64_t, std::vector<std::string>>& trained,
                          const std::set<std::string>& bad, const data::Dataset& dataset,
                          const data::DataOptions& options, const data::Epochs& epochs,
                          std::int64_t batch_size) {
  std::map<std::string, std::int64_t> balance;  // Trained less expected.
  std::set<std::string> never;
  std::int64_t epoch = -1;
  std::vector<std::int64_t> order;
  for (const auto& [step, ids] : trained) {
    if (ids.empty()) continue;
    const auto span = epochs.span(step - 1, batch_size);
    if (span.epoch != epoch) {
      epoch = span.epoch;
      order = epochs.order(options, epoch);
    }
    const std::set<std::string> own(ids.begin(), ids.end());
    for (const std::string& id : ids) ++balance[id];
    for (std::int64_t position = span.begin; position < span.end; ++position) {
      const std::string& id = dataset[order[static_cast<std::size_t>(position)]].id;
      if (own.contains(id)) --balance[id];
      if (!own.contains(id) && !bad.contains(id)) never.insert(id);
    }
  }
  SampleAudit audit{{}, {never.begin(), never.end()}};
  for (const auto& [id, count] : balance)
    if (count > 0) audit.trained_twice.push_back(id);
  std::int64_t next = trained.empty() ? 1 : trained.begin()->first;
  for (const auto& [step, ids] : trained) {
    for (; next < step; ++next) audit.missing_steps.push_back(next);
    next = step + 1;
  }
  return audit;
}

}  // namespace troupe::engine
