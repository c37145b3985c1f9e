#include "engine/execution/executor_options.hpp"

#include "runtime/job/job.hpp"

namespace troupe::engine {

std::vector<SlowRows> slow_rows(const job::Debug& debug, const ModelGraph& model, NodeId node) {
  std::vector<SlowRows> rows;
  for (const auto& slow : debug.slow_shapes)
    if (!slow.node || NodeId{static_cast<std::size_t>(*slow.node)} == node)
      rows.push_back({model.find(slow.module), slow.min_rows, slow.max_rows, slow.factor,
                      slow.per_sample, slow.from_step, slow.to_step});
  return rows;
}

}  // namespace troupe::engine
