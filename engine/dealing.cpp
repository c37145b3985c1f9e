#include "engine/dealing.hpp"

#include <algorithm>

#include "scheduler/distribute.hpp"

namespace troupe::engine {

namespace {

// What a batch weighs against the next one: a device that slows down shows after about ten.
constexpr double kMemory = 0.9;

std::vector<std::int64_t> even(std::int64_t size, std::size_t pipelines) {
  const auto count = static_cast<std::int64_t>(pipelines);
  std::vector<std::int64_t> counts(pipelines, size / count);
  for (std::int64_t p = 0; p < size % count; ++p) ++counts[static_cast<std::size_t>(p)];
  return counts;
}

}  // namespace

std::vector<std::int64_t> Dealing::counts(std::int64_t batch, std::int64_t size) const {
  auto known = sums_.upper_bound(batch - lag_);
  if (known == sums_.begin() || size < static_cast<std::int64_t>(pipelines_))
    return even(size, pipelines_);
  std::vector<double> ms_per_work;
  for (const Share& sum : std::prev(known)->second)
    ms_per_work.push_back(sum.busy_ms / sum.work_ms);
  auto counts = scheduler::distribute(ms_per_work, size, 1);
  return counts.ok() ? std::move(counts).value() : even(size, pipelines_);
}

void Dealing::note(std::int64_t batch, const std::vector<Share>& shares) {
  for (const Share& share : shares)
    if (!(share.work_ms > 0 && share.busy_ms > 0)) return;
  auto sums = sums_.empty() ? std::vector<Share>(pipelines_) : sums_.rbegin()->second;
  for (std::size_t p = 0; p < pipelines_; ++p) {
    sums[p].work_ms = kMemory * sums[p].work_ms + shares[p].work_ms;
    sums[p].busy_ms = kMemory * sums[p].busy_ms + shares[p].busy_ms;
  }
  sums_[batch] = std::move(sums);
  // Deals to come look back by `lag_` at most, or to the last batch before that.
  while (sums_.size() > 1 && std::next(sums_.begin())->first <= batch - lag_)
    sums_.erase(sums_.begin());
}

std::vector<Dealing::Share> Dealing::known(std::int64_t batch) const {
  const auto found = sums_.find(batch);
  return found == sums_.end() ? std::vector<Share>{} : found->second;
}

void Dealing::restore(const std::vector<DealNote>& notes) {
  for (const DealNote& note : notes)
    if (note.shares.size() == pipelines_) sums_[note.batch] = note.shares;
}

}  // namespace troupe::engine
