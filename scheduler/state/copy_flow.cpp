#include "scheduler/state/copy_flow.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace troupe::scheduler {

namespace {

class Dinic {
 public:
  explicit Dinic(std::size_t node_count) : edges_of_(node_count) {}

  std::size_t add_edge(std::size_t from, std::size_t to, std::int64_t capacity) {
    edges_of_[from].push_back(edges_.size());
    edges_.push_back({to, capacity});
    edges_of_[to].push_back(edges_.size());
    edges_.push_back({from, 0});
    return edges_.size() - 2;
  }

  std::int64_t run(std::size_t source, std::size_t sink) {
    std::int64_t flow = 0;
    while (set_levels(source, sink)) {
      next_.assign(edges_of_.size(), 0);
      while (const std::int64_t more = push(source, sink, std::numeric_limits<std::int64_t>::max()))
        flow += more;
    }
    return flow;
  }

  /// What flows through an edge: the capacity of its reverse.
  std::int64_t flow(std::size_t edge) const { return edges_[edge + 1].capacity; }

 private:
  struct Edge {
    std::size_t to;
    std::int64_t capacity;
  };

  bool set_levels(std::size_t source, std::size_t sink) {
    level_.assign(edges_of_.size(), -1);
    level_[source] = 0;
    std::vector<std::size_t> queue{source};
    for (std::size_t head = 0; head < queue.size(); ++head)
      for (const auto id : edges_of_[queue[head]])
        if (edges_[id].capacity > 0 && level_[edges_[id].to] < 0) {
          level_[edges_[id].to] = level_[queue[head]] + 1;
          queue.push_back(edges_[id].to);
        }
    return level_[sink] >= 0;
  }

  // Depth is at most the number of levels, which is small in this graph.
  std::int64_t push(std::size_t node, std::size_t sink, std::int64_t most) {
    if (node == sink) return most;
    for (auto& i = next_[node]; i < edges_of_[node].size(); ++i) {
      const auto id = edges_of_[node][i];
      if (edges_[id].capacity <= 0 || level_[edges_[id].to] != level_[node] + 1) continue;
      const auto pushed = push(edges_[id].to, sink, std::min(most, edges_[id].capacity));
      if (pushed == 0) continue;
      edges_[id].capacity -= pushed;
      edges_[id ^ 1].capacity += pushed;
      return pushed;
    }
    return 0;
  }

  std::vector<std::vector<std::size_t>> edges_of_;
  std::vector<Edge> edges_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
};

}  // namespace

std::vector<std::vector<std::int64_t>> split_flow(const std::vector<CopyJob>& jobs,
                                                  std::int32_t sender_count, std::int64_t limit) {
  // Nodes: source, jobs, senders, sink.
  const std::size_t senders = jobs.size() + 1;
  const std::size_t sink = senders + static_cast<std::size_t>(sender_count);
  Dinic graph(sink + 1);
  std::int64_t wanted = 0, divisor = 0;
  for (const auto& job : jobs) divisor = std::gcd(divisor, job.bytes);
  std::vector<std::vector<std::size_t>> edges(jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    wanted += jobs[i].bytes * jobs[i].count;
    graph.add_edge(0, i + 1, jobs[i].bytes * jobs[i].count);
    for (const auto sender : jobs[i].senders)
      edges[i].push_back(graph.add_edge(i + 1, senders + static_cast<std::size_t>(sender),
                                        limit / jobs[i].bytes * jobs[i].bytes));
  }
  for (std::int32_t sender = 0; sender < sender_count; ++sender)
    graph.add_edge(senders + static_cast<std::size_t>(sender), sink,
                   divisor > 0 ? limit / divisor * divisor : 0);
  if (graph.run(0, sink) < wanted) return {};
  std::vector<std::vector<std::int64_t>> bytes(jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i)
    for (const auto edge : edges[i]) bytes[i].push_back(graph.flow(edge));
  return bytes;
}

}  // namespace troupe::scheduler
