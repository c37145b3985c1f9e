#include "balancer/ranks/rearrangement.hpp"

#include <algorithm>
#include <cassert>
#include <string>

namespace troupe::balancer {

namespace {

std::string place(const ItemRef& item) {
  return "[" + std::to_string(item.rank) + "," + std::to_string(item.index) + "]";
}

Error wrong(std::size_t batch, std::string message) {
  return {Errc::invalid_argument, std::move(message), "batch " + std::to_string(batch), {}};
}

// Start of each rank's items when all ranks are laid end to end, and the end.
std::vector<std::int32_t> offsets_of(std::span<const std::int32_t> sizes) {
  std::vector<std::int32_t> offsets(sizes.size() + 1, 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) offsets[i + 1] = offsets[i] + sizes[i];
  return offsets;
}

}  // namespace

Result<Rearrangement> Rearrangement::create(const std::vector<std::vector<ItemRef>>& sources,
                                            std::size_t source_count) {
  std::size_t item_count = 0;
  for (const auto& batch : sources) item_count += batch.size();
  const std::size_t rank_limit =
      source_count > 0 ? source_count : sources.size() + item_count + 1;  // A gap costs an item.
  std::vector<std::int32_t> sizes(source_count > 0 ? source_count : sources.size(), 0);
  for (std::size_t b = 0; b < sources.size(); ++b)
    for (const auto& item : sources[b]) {
      if (item.rank < 0 || item.index < 0)
        return wrong(b, place(item) + " counts below 0; ranks and indices count from 0");
      const auto rank = static_cast<std::size_t>(item.rank);
      if (rank >= rank_limit) return wrong(b, place(item) + " names a rank beyond the last one");
      if (static_cast<std::size_t>(item.index) >= item_count)
        return wrong(b, place(item) + " names an index beyond the " + std::to_string(item_count) +
                            " items there are");
      if (rank >= sizes.size()) sizes.resize(rank + 1, 0);
      ++sizes[rank];
    }
  const auto offsets = offsets_of(sizes);
  std::vector<bool> seen(item_count, false);
  Rearrangement result;
  result.offsets_.push_back(0);
  for (std::size_t b = 0; b < sources.size(); ++b) {
    for (const auto& item : sources[b]) {
      const auto rank = static_cast<std::size_t>(item.rank);
      if (item.index >= sizes[rank])
        return wrong(b, place(item) + " leaves a gap: only " + std::to_string(sizes[rank]) +
                            " items come from that rank");
      const auto flat = static_cast<std::size_t>(offsets[rank] + item.index);
      if (seen[flat]) return wrong(b, place(item) + " occurs twice");
      seen[flat] = true;
      result.items_.push_back(item);
    }
    result.offsets_.push_back(static_cast<std::int32_t>(result.items_.size()));
  }
  result.source_sizes_ = std::move(sizes);
  return result;
}

Rearrangement Rearrangement::identity(std::span<const std::int32_t> sizes) {
  Rearrangement result;
  result.offsets_ = offsets_of(sizes);
  result.source_sizes_.assign(sizes.begin(), sizes.end());
  for (std::size_t rank = 0; rank < sizes.size(); ++rank)
    for (std::int32_t i = 0; i < sizes[rank]; ++i)
      result.items_.push_back({static_cast<std::int32_t>(rank), i});
  return result;
}

Rearrangement Rearrangement::from_flat(std::vector<ItemRef> items,
                                       std::vector<std::int32_t> offsets,
                                       std::vector<std::int32_t> source_sizes) {
  assert(!offsets.empty() && offsets.back() == static_cast<std::int32_t>(items.size()));
  Rearrangement result;
  result.items_ = std::move(items);
  result.offsets_ = std::move(offsets);
  result.source_sizes_ = std::move(source_sizes);
  return result;
}

Rearrangement Rearrangement::inverse() const {
  Rearrangement result;
  result.offsets_ = offsets_of(source_sizes_);
  result.items_.resize(items_.size());
  for (std::size_t b = 0; b < batch_count(); ++b) {
    std::int32_t position = 0;
    for (const auto& item : batch(b)) {
      const auto start = result.offsets_[static_cast<std::size_t>(item.rank)];
      result.items_[static_cast<std::size_t>(start + item.index)] = {static_cast<std::int32_t>(b),
                                                                     position++};
    }
    result.source_sizes_.push_back(position);
  }
  return result;
}

Rearrangement Rearrangement::permuted(std::span<const std::int32_t> place_of) const {
  assert(place_of.size() == batch_count());
  std::vector<std::size_t> batch_at(place_of.size());
  for (std::size_t b = 0; b < place_of.size(); ++b)
    batch_at[static_cast<std::size_t>(place_of[b])] = b;
  Rearrangement result;
  result.source_sizes_ = source_sizes_;
  result.items_.reserve(items_.size());
  result.offsets_.push_back(0);
  for (const auto b : batch_at) {
    result.items_.insert(result.items_.end(), batch(b).begin(), batch(b).end());
    result.offsets_.push_back(static_cast<std::int32_t>(result.items_.size()));
  }
  return result;
}

Result<Rearrangement> compose(const Rearrangement& first, const Rearrangement& second) {
  const auto taken = second.source_sizes();
  // Ranks that hold nothing may be missing at the end on either side.
  for (std::size_t b = 0; b < std::max(first.batch_count(), taken.size()); ++b) {
    const std::size_t made = b < first.batch_count() ? first.batch(b).size() : 0;
    const auto needed = static_cast<std::size_t>(b < taken.size() ? taken[b] : 0);
    if (made != needed)
      return wrong(b, "the first rearrangement puts " + std::to_string(made) +
                          " items here, the second takes " + std::to_string(needed));
  }
  std::vector<ItemRef> items;
  std::vector<std::int32_t> offsets{0};
  items.reserve(second.item_count());
  for (std::size_t b = 0; b < second.batch_count(); ++b) {
    for (const auto& item : second.batch(b))
      items.push_back(
          first.batch(static_cast<std::size_t>(item.rank))[static_cast<std::size_t>(item.index)]);
    offsets.push_back(static_cast<std::int32_t>(items.size()));
  }
  const auto sizes = first.source_sizes();
  return Rearrangement::from_flat(std::move(items), std::move(offsets),
                                  {sizes.begin(), sizes.end()});
}

}  // namespace troupe::balancer
