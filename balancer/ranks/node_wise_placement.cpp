#include "balancer/ranks/node_wise_placement.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "balancer/loads/load_tree.hpp"

namespace troupe::balancer {

Placement::Placement(const VolumeTable& table, const RankNodes& nodes)
    : table_(table),
      nodes_(nodes),
      ranks_(table.rank_count()),
      off_(ranks_, 0),
      node_of_(ranks_, kFree),
      batches_(nodes.count()),
      related_(batches_.size(), 0) {
  for (std::size_t rank = 0; rank < ranks_; ++rank)
    for (const auto& entry : table_.of_rank(rank)) off_[rank] += entry.volume;
}

template <class Visit>
void Placement::on_node(std::size_t batch, std::size_t node, Visit visit) const {
  const auto begin = nodes_.begin(node);
  const auto width = nodes_.size(node);
  for (const auto& entry : table_.of_batch(batch)) {
    const auto rank = static_cast<std::size_t>(entry.other);
    if (rank - begin < width) visit(rank, static_cast<double>(entry.volume));
  }
}

template <class Visit>
void Placement::place(std::size_t batch, std::size_t node, Visit visit) {
  node_of_[batch] = static_cast<std::uint32_t>(node);
  batches_[node].push_back(batch);
  on_node(batch, node, [&](std::size_t rank, double volume) {
    off_[rank] -= volume;
    visit(rank);
  });
}

void Placement::rescue_worst() {
  LoadTree<double> worst(ranks_);
  for (std::size_t rank = 0; rank < ranks_; ++rank) worst.set(rank, -off_[rank]);
  for (std::size_t settled = 0; settled < ranks_;) {
    const auto rank = worst.least();
    const auto batch = best_free_batch(rank);
    if (batch == kNone) {
      worst.set(rank, std::numeric_limits<double>::infinity());
      ++settled;
      continue;
    }
    const auto node = nodes_.of(rank);
    place(batch, node, [&](std::size_t r) {
      if (!std::isinf(worst.key(r))) worst.set(r, -off_[r]);
    });
  }
  for (std::size_t batch = 0; batch < ranks_; ++batch)
    if (node_of_[batch] == kFree) place(batch, most_related_node(batch));
}

void Placement::swap_while_better(std::int64_t evaluations_max) {
  while (evaluations_max > 0) {
    const auto worst =
        static_cast<std::size_t>(std::max_element(off_.begin(), off_.end()) - off_.begin());
    if (!relieve(worst, evaluations_max)) return;
  }
}

// Ranks of a node take its batches by what each sends of them, largest first.
std::vector<std::int32_t> Placement::ranks_of_batches() const {
  std::vector<std::int32_t> rank_of(ranks_, -1);
  for (std::size_t node = 0; node < batches_.size(); ++node) share(node, rank_of);
  return rank_of;
}

double Placement::volume_of(std::size_t batch, std::size_t rank) const {
  double sum = 0;
  for (const auto& entry : table_.of_batch(batch))
    if (static_cast<std::size_t>(entry.other) == rank) sum += static_cast<double>(entry.volume);
  return sum;
}

std::size_t Placement::best_free_batch(std::size_t rank) const {
  if (is_full(nodes_.of(rank))) return kNone;
  std::size_t best = kNone;
  float largest = 0;
  for (const auto& entry : table_.of_rank(rank)) {  // Ascending, so that ties stay with the lower.
    if (entry.volume <= largest) continue;
    const auto batch = static_cast<std::size_t>(entry.other);
    if (node_of_[batch] != kFree) continue;
    best = batch;
    largest = entry.volume;
  }
  return best;
}

std::size_t Placement::most_related_node(std::size_t batch) {
  std::size_t best = kNone;
  const auto row = table_.of_batch(batch);
  const auto node_of_rank = [&](const VolumeTable::Entry& volume) {
    return nodes_.of(static_cast<std::size_t>(volume.other));
  };
  for (const auto& volume : row)
    related_[node_of_rank(volume)] += static_cast<double>(volume.volume);
  for (const auto& volume : row) {
    const auto node = node_of_rank(volume);
    if (is_full(node)) continue;
    if (best == kNone || related_[node] > related_[best] ||
        (related_[node] == related_[best] && node < best))
      best = node;
  }
  for (const auto& volume : row) related_[node_of_rank(volume)] = 0;
  while (best == kNone && is_full(first_free_)) ++first_free_;
  return best == kNone ? first_free_ : best;
}

void Placement::place(std::size_t batch, std::size_t node) {
  place(batch, node, [](std::size_t) {});
}

void Placement::remove(std::size_t batch) {
  const auto node = node_of_[batch];
  auto& list = batches_[node];
  list.erase(std::find(list.begin(), list.end(), batch));
  on_node(batch, node, [&](std::size_t rank, double volume) { off_[rank] += volume; });
  node_of_[batch] = kFree;
}

void Placement::swap(std::size_t a, std::size_t b) {
  const auto node_a = node_of_[a];
  const auto node_b = node_of_[b];
  remove(a);
  remove(b);
  place(a, node_b);
  place(b, node_a);
}

// True if no rank of the node reaches the limit when one batch leaves it and another comes. Only
// ranks with rows in the batch that leaves can send more than before.
bool Placement::stays_below(double limit, std::size_t gone, std::size_t come,
                            std::size_t node) const {
  bool below = true;
  on_node(gone, node, [&](std::size_t rank, double) {
    below = below && off_[rank] + volume_of(gone, rank) - volume_of(come, rank) < limit;
  });
  return below;
}

// Brings some batch of the worst rank onto its node in exchange for one there.
bool Placement::relieve(std::size_t worst, std::int64_t& evaluations_left) {
  const auto node = nodes_.of(worst);
  const double limit = off_[worst] * (1 - 1e-12);
  for (const auto& entry : table_.of_rank(worst)) {
    const auto wanted = static_cast<std::size_t>(entry.other);
    const std::size_t other = node_of_[wanted];
    if (other == node || entry.volume <= 0) continue;
    for (const auto given : batches_[node]) {
      if (--evaluations_left < 0) return false;
      if (!stays_below(limit, given, wanted, node) || !stays_below(limit, wanted, given, other))
        continue;
      swap(wanted, given);
      return true;
    }
  }
  return false;
}

void Placement::share(std::size_t node, std::vector<std::int32_t>& rank_of) const {
  const std::size_t first = nodes_.begin(node);
  std::vector<bool> taken(nodes_.size(node), false);
  for (const auto batch : batches_[node]) {
    std::size_t best = kNone;
    double largest = 0;
    on_node(batch, node, [&](std::size_t rank, double volume) {
      const auto slot = rank - first;
      if (taken[slot] || volume <= largest) return;
      best = slot;
      largest = volume;
    });
    if (best == kNone) continue;
    taken[best] = true;
    rank_of[batch] = static_cast<std::int32_t>(first + best);
  }
  std::size_t slot = 0;
  for (const auto batch : batches_[node]) {
    if (rank_of[batch] >= 0) continue;
    while (taken[slot]) ++slot;
    taken[slot] = true;
    rank_of[batch] = static_cast<std::int32_t>(first + slot);
  }
}

}  // namespace troupe::balancer
