#include "runtime/data/batches/epochs.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace troupe::data {

namespace {

std::int64_t sum(const SourceCounts& stretch) {
  return std::accumulate(stretch.records.begin(), stretch.records.end(), std::int64_t{0});
}

}  // namespace

Epochs::Epochs(std::vector<SourceCounts> stretches) : stretches_(std::move(stretches)) {
  if (stretches_.empty()) stretches_ = {{0, {0}}};
}

const SourceCounts& Epochs::at(std::int64_t epoch) const {
  const auto after = std::find_if(stretches_.begin(), stretches_.end(),
                                  [&](const auto& stretch) { return stretch.first_epoch > epoch; });
  return *std::prev(after);
}

std::int64_t Epochs::count(std::int64_t epoch) const { return sum(at(epoch)); }

std::int64_t Epochs::newest_count() const { return sum(stretches_.back()); }

std::int64_t Epochs::places_before(std::int64_t epoch) const {
  std::int64_t places = 0;
  for (std::size_t s = 0; s < stretches_.size() && stretches_[s].first_epoch < epoch; ++s) {
    const bool is_last = s + 1 == stretches_.size();
    const auto end = is_last ? epoch : std::min(epoch, stretches_[s + 1].first_epoch);
    places += (end - stretches_[s].first_epoch) * sum(stretches_[s]);
  }
  return places;
}

std::int64_t Epochs::batches_before(std::int64_t epoch, std::int64_t batch_size) const {
  std::int64_t batches = 0;
  for (std::size_t s = 0; s < stretches_.size() && stretches_[s].first_epoch < epoch; ++s) {
    const bool is_last = s + 1 == stretches_.size();
    const auto end = is_last ? epoch : std::min(epoch, stretches_[s + 1].first_epoch);
    batches +=
        (end - stretches_[s].first_epoch) * batches_per_epoch(sum(stretches_[s]), batch_size);
  }
  return batches;
}

BatchSpan Epochs::span(std::int64_t batch, std::int64_t batch_size) const {
  // The last stretch that begins at this batch or before.
  auto stretch = stretches_.end();
  std::int64_t before = 0;
  do {
    --stretch;
    before = batches_before(stretch->first_epoch, batch_size);
  } while (before > batch);
  auto span = batch_span(batch - before, batch_size, sum(*stretch));
  span.epoch += stretch->first_epoch;
  return span;
}

std::int64_t Epochs::batches_for(std::int64_t places, std::int64_t batch_size) const {
  auto stretch = stretches_.end();
  std::int64_t before = 0;
  do {
    --stretch;
    before = places_before(stretch->first_epoch);
  } while (before > places);
  const std::int64_t records = sum(*stretch), left = places - before;
  return batches_before(stretch->first_epoch + left / records, batch_size) +
         batches_per_epoch(left % records, batch_size);
}

std::int64_t Epochs::first_untouched(std::int64_t next_batch, std::int64_t batch_size) const {
  const auto next = span(next_batch, batch_size);
  return next.begin == 0 ? next.epoch : next.epoch + 1;
}

Epochs Epochs::grown(std::int64_t epoch, std::vector<std::int64_t> records) const {
  auto stretches = stretches_;
  std::erase_if(stretches, [&](const auto& stretch) { return stretch.first_epoch >= epoch; });
  stretches.push_back({epoch, std::move(records)});
  return Epochs(std::move(stretches));
}

std::vector<std::int64_t> Epochs::order(const DataOptions& options, std::int64_t epoch) const {
  const auto& own = at(epoch).records;
  const auto& newest = stretches_.back().records;
  auto order = record_order(options, epoch, count(epoch));
  if (own == newest) return order;
  // Sources lie one behind the other, each with what was appended to it at its end.
  std::vector<std::int64_t> places;
  std::int64_t begin = 0;
  for (std::size_t source = 0; source < own.size(); ++source) {
    for (std::int64_t i = 0; i < own[source]; ++i) places.push_back(begin + i);
    begin += newest[source];
  }
  for (std::int64_t& record : order) record = places[static_cast<std::size_t>(record)];
  return order;
}

}  // namespace troupe::data
