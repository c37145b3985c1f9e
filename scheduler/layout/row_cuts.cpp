#include "scheduler/layout/row_cuts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/vocabulary/index.hpp"

namespace troupe::scheduler {

namespace {

/// Cuts of a row of layers, and what decides whether a smaller bound could do.
struct Filled {
  bool ok = false;
  double largest = 0;  ///< Largest load of a piece, where all layers found a place.
  double next = 0;     ///< The least bound above the one tried at which pieces differ.
};

/// Cuts layers with these prefix sums into as many pieces as there are loads, adding a piece to
/// each, so that none exceeds `bound`; earlier pieces take what fits.
Filled fill(const std::vector<double>& sums, const std::vector<double>& loads, double bound,
            std::vector<std::int32_t>& cuts) {
  Filled made{true, 0, std::numeric_limits<double>::infinity()};
  const std::size_t layers = sums.size() - 1, pieces = loads.size();
  std::size_t begin = 0;
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    const std::size_t last = layers - (pieces - piece - 1);  // The others need a layer each.
    const double before = loads[piece] - sums[begin];
    // Pieces are short where there are many: search near their begin first.
    std::size_t reach = begin + 1;
    while (reach < last && !(bound < before + sums[reach]))
      reach = std::min(last, begin + 2 * (reach - begin));
    auto end = static_cast<std::size_t>(
        std::upper_bound(sums.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                         sums.begin() + static_cast<std::ptrdiff_t>(reach) + 1, bound,
                         [&](double most, double sum) { return most < before + sum; }) -
        sums.begin() - 1);
    if (end < last) made.next = std::min(made.next, before + sums[end + 1]);
    if (end == begin) {
      made.ok = false;
      ++end;
    }
    made.largest = std::max(made.largest, before + sums[end]);
    cuts[piece + 1] = static_cast<std::int32_t>(end);
    begin = end;
  }
  made.ok = made.ok && begin == layers;
  return made;
}

/// Cuts with the least largest load. Every bound that is tried rules out all that would cut alike.
std::vector<std::int32_t> balanced_cuts(const LayerRow& row, const std::vector<double>& loads) {
  const double all_loads = std::accumulate(loads.begin(), loads.end(), 0.0);
  double low =
      std::max((row.work_ms() + all_loads) / static_cast<double>(loads.size()), row.largest_ms);
  low *= 1 - 1e-12;  // Sums round.
  std::vector<std::int32_t> best(loads.size() + 1), cuts(loads.size() + 1);
  // A layer more than the mean is nearly always enough.
  auto roomy = fill(row.sums, loads, low + row.largest_ms, best);
  if (!roomy.ok) {
    const double all = row.work_ms() + *std::max_element(loads.begin(), loads.end());
    roomy = fill(row.sums, loads, 2 * all, best);
  }
  double high = roomy.largest;
  for (bool first = true; low < high; first = false) {
    // The mean is often close, so that it is tried before halves.
    const double middle = low + (high - low) / 2;
    const auto made = fill(row.sums, loads, first || middle >= high ? low : middle, cuts);
    if (made.ok) {
      high = made.largest;
      std::swap(best, cuts);
    } else {
      low = std::max(made.next, std::nextafter(low, high));
    }
  }
  return best;
}

void add_loads(const Track& track, const LayerWeights& weights, std::vector<double>& loads) {
  for (std::int32_t s = 0; s < track.segments(); ++s)
    for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l)
      loads[at(track.first_device + s)] += weights.work_ms[track.layers[at(l)]];
}

}  // namespace

void cut_row(LayerRow& row, const LayerWeights& weights, std::int32_t count, Track& track,
             std::vector<double>& loads) {
  const auto first = loads.begin() + track.first_device, end = first + count;
  track.layers = row.layers;
  if (std::any_of(first, end, [](double ms) { return ms != 0; })) {
    track.cuts = balanced_cuts(row, {first, end});
    return add_loads(track, weights, loads);
  }
  row.even.resize(row.layers.size() + 1);
  auto& known = row.even[at(count)];
  if (known.cuts.empty()) {
    known.loads.resize(at(count));
    Track alone{row.layers, 0, balanced_cuts(row, known.loads)};
    add_loads(alone, weights, known.loads);
    known.cuts = std::move(alone.cuts);
  }
  track.cuts = known.cuts;
  std::copy(known.loads.begin(), known.loads.end(), first);
}

}  // namespace troupe::scheduler
