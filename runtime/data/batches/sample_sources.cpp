#include "runtime/data/batches/sample_sources.hpp"

#include <algorithm>
#include <utility>

#include "runtime/data/samples/record_place.hpp"

namespace troupe::data {

SampleSources::SampleSources(const DataOptions& options, Epochs epochs,
                             std::vector<std::vector<NodeId>> seen_by)
    : epochs_(std::move(epochs)), seen_by_(std::move(seen_by)) {
  options_.seed = options.seed;
  options_.shuffle = options.shuffle;
  if (std::all_of(seen_by_.begin(), seen_by_.end(),
                  [](const auto& nodes) { return nodes.empty(); }))
    seen_by_.clear();
}

const std::vector<NodeId>& SampleSources::seen_by(std::int64_t epoch, std::int64_t position) const {
  static const std::vector<NodeId> everybody;
  if (all_seen()) return everybody;
  auto order = orders_.find(epoch);
  if (order == orders_.end()) {
    constexpr std::size_t kKept = 2;  // Batches run from one epoch into the next.
    if (orders_.size() >= kKept) orders_.erase(orders_.begin());
    order = orders_.emplace(epoch, epochs_.order(options_, epoch)).first;
  }
  const std::int64_t record = order->second[static_cast<std::size_t>(position)];
  const auto source = place_of(record, epochs_.stretches().back().records).source;
  return source < seen_by_.size() ? seen_by_[source] : everybody;
}

bool SampleSources::is_seen_by(NodeId node, std::int64_t epoch, std::int64_t position) const {
  const auto& nodes = seen_by(epoch, position);
  return nodes.empty() || std::binary_search(nodes.begin(), nodes.end(), node);
}

}  // namespace troupe::data
