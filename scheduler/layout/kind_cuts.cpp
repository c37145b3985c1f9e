#include "scheduler/layout/kind_cuts.hpp"

#include <utility>

namespace troupe::scheduler {

std::vector<HandStage> cut_by_kinds(const ModelGraph& model, const std::vector<std::int32_t>& kinds,
                                    HandStage entry) {
  std::vector<HandStage> entries;
  if (kinds.empty()) {
    entries.push_back(std::move(entry));
    return entries;
  }
  const auto runs = std::exchange(entry.runs, {});
  std::int32_t known = 0;  // The kind of the last entry.
  for (const HandRun& run : runs) {
    const std::int32_t kind = kinds[model.find(run.module).index()];
    const bool is_border = kind != 0 && known != 0 && kind != known;
    if (entries.empty() || is_border) entries.push_back(entry);
    if (kind != 0) known = kind;
    entries.back().runs.push_back(run);
  }
  return entries;
}

}  // namespace troupe::scheduler
