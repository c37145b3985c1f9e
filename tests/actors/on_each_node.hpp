// A layout of four nodes for tests of heads that lose some.

#pragma once

#include "runtime/job/job.hpp"

namespace troupe::actors {

/// All of the model on each node, so that the job bears whatever happens to three of them.
inline void on_each_node(job::Job& job) {
  job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}, {"llm", {}}}}},
                                   {{1, 0, {{"vision", {}}, {"llm", {}}}}},
                                   {{2, 0, {{"vision", {}}, {"llm", {}}}}},
                                   {{3, 0, {{"vision", {}}, {"llm", {}}}}}};
}

}  // namespace troupe::actors
