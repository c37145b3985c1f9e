// Sources of data that only some nodes of a job see (`data.sources[].nodes`).
//
// Pure.

#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "runtime/data/reading/options.hpp"
#include "runtime/job/job.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

/// Nodes that see a source, ascending; none: all of them. REQUIRES: the job has it.
std::vector<NodeId> nodes_that_see(const job::Job& job, std::size_t source);

std::vector<std::vector<NodeId>> source_nodes(const job::Job& job);  ///< The same, per source.

/// Whether a node sees a source. REQUIRES: the job has it.
bool sees_source(const job::Job& job, std::size_t source, NodeId node);

/// Has the options leave out the sources that a node does not see. REQUIRES: the job's sources.
void see_as(NodeId node, const job::Job& job, data::DataOptions& options);

/// Whether nodes that work in a layout see every source, so that each sample can be decoded.
/// Errors: infeasible: names the first source that none of them sees, and who does.
Status check_sources(const job::Job& job, const std::set<NodeId>& working);
Status check_sources(const job::Job& job,
                     std::int32_t count);  ///< The same of nodes 0 to count - 1.

}  // namespace troupe::engine
