#include "engine/setup/source_nodes.hpp"

#include <algorithm>
#include <string>

#include "runtime/vocabulary/joined.hpp"

namespace troupe::engine {

std::vector<NodeId> nodes_that_see(const job::Job& job, std::size_t source) {
  std::vector<NodeId> nodes;
  for (const auto number : job.data.sources[source].nodes) nodes.emplace_back(number);
  return nodes;
}

std::vector<std::vector<NodeId>> source_nodes(const job::Job& job) {
  std::vector<std::vector<NodeId>> nodes;
  for (std::size_t s = 0; s < job.data.sources.size(); ++s) nodes.push_back(nodes_that_see(job, s));
  return nodes;
}

bool sees_source(const job::Job& job, std::size_t source, NodeId node) {
  const auto& nodes = job.data.sources[source].nodes;
  return nodes.empty() || std::find(nodes.begin(), nodes.end(), node.value) != nodes.end();
}

void see_as(NodeId node, const job::Job& job, data::DataOptions& options) {
  for (std::size_t s = 0; s < options.sources.size(); ++s) {
    options.sources[s].is_here = sees_source(job, s, node);
    options.sources[s].may_lack_media = false;
  }
}

Status check_sources(const job::Job& job, const std::set<NodeId>& working) {
  if (working.empty())
    return Error{Errc::infeasible, "no node is left to train on", "cluster.nodes",
                 "start the job again, or let nodes join before the last one goes"};
  for (std::size_t s = 0; s < job.data.sources.size(); ++s) {
    const auto& source = job.data.sources[s];
    if (std::any_of(working.begin(), working.end(),
                    [&](NodeId node) { return sees_source(job, s, node); }))
      continue;
    const std::string who = (source.nodes.size() == 1 ? "node " : "nodes ") + joined(source.nodes);
    const std::string key = "data.sources[" + std::to_string(s) + "]";
    return Error{Errc::infeasible,
                 "no node of the layout sees " + key + " (" + source.json.string() +
                     "), which is only on " + who,
                 key + ".nodes", "give such a node a device of the layout, or the data more nodes"};
  }
  return Done{};
}

Status check_sources(const job::Job& job, std::int32_t count) {
  std::set<NodeId> nodes;
  for (std::int32_t node = 0; node < count; ++node) nodes.emplace(node);
  return check_sources(job, nodes);
}

}  // namespace troupe::engine
