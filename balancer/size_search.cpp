#include "balancer/size_search.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "balancer/taper.hpp"
#include "runtime/vocabulary/random.hpp"

namespace troupe::balancer {

namespace {

constexpr double kSizeLeast = 0.05;

class SizeSearch {
 public:
  SizeSearch(std::int64_t count, std::int64_t stages, const SizeScore& score)
      : count_(count), stages_(static_cast<double>(stages)), score_(score) {}

  void run_tapers() {
    for (const auto& start : starts()) try_taper(start);
    for (const double step : {1.6, 1.25, 1.1})
      for (bool better = true; better && !spent_;) {
        better = false;
        for (const auto& neighbour : neighbours(taper_, step))
          if (!spent_ && !(neighbour == taper_) && try_taper(neighbour)) better = true;
      }
  }

  void run_free(Random& random, std::int64_t trials_max) {
    for (std::int64_t trial = 0; trial < trials_max && !spent_; ++trial) {
      auto sizes = sizes_;
      const auto [begin, end] = run_of_some(random, sizes.size());
      const double factor = std::exp(0.25 * (2 * random.uniform() - 1));
      for (auto i = begin; i < end; ++i) sizes[i] *= factor;
      const double largest = *std::max_element(sizes.begin(), sizes.end());
      for (auto& size : sizes) size = std::max(kSizeLeast, size / largest);
      try_sizes(std::move(sizes));
    }
  }

 private:
  // A single one, all before or behind one, or a run between two.
  static std::pair<std::size_t, std::size_t> run_of_some(Random& random, std::size_t count) {
    const auto one = random.below(count);
    switch (random.below(4)) {
      case 0: return {one, one + 1};
      case 1: return {0, one + 1};
      case 2: return {one, count};
      default: break;
    }
    const auto other = random.below(count);
    return {std::min(one, other), std::max(one, other) + 1};
  }

  // From hardly any taper, for schedules that wait for the whole batch, to a deep one.
  std::vector<Taper> starts() const {
    const auto length = [&](double stages) { return std::max(1.0, stages * stages_); };
    return {{0.5, length(1), 0.5, length(2)},
            {0.8, length(1), 0.8, length(1.5)},
            {0.35, length(1), 0.35, length(1.5)},
            {0.7, 1, 0.35, length(2)}};
  }

  static std::vector<Taper> neighbours(const Taper& taper, double step) {
    std::vector<Taper> all;
    for (const double factor : {1 / step, step}) {
      const auto size = [&](double old) { return std::clamp(old * factor, kSizeLeast, 1.0); };
      const auto length = [&](double old) { return std::max(1.0, old * factor); };
      all.push_back({size(taper.first), taper.rise, size(taper.last), taper.fall});
      all.push_back({taper.first, length(taper.rise), taper.last, length(taper.fall)});
      all.push_back({size(taper.first), taper.rise, taper.last, taper.fall});
      all.push_back({taper.first, length(taper.rise), taper.last, taper.fall});
    }
    return all;
  }

  bool try_taper(const Taper& taper) {
    if (!try_sizes(taper_sizes(taper, count_))) return false;
    taper_ = taper;
    return true;
  }

  bool try_sizes(std::vector<double> sizes) {
    const auto score = spent_ ? std::nullopt : score_(sizes);
    spent_ = !score;
    if (spent_ || (!sizes_.empty() && *score >= best_)) return false;
    best_ = *score;
    sizes_ = std::move(sizes);
    return true;
  }

  std::int64_t count_;
  double stages_;
  const SizeScore& score_;
  bool spent_ = false;
  double best_ = 0;
  Taper taper_;
  std::vector<double> sizes_;  // The best so far; empty before the first.
};

}  // namespace

void search_sizes(std::int64_t count, std::int64_t pipeline_stages, std::uint64_t seed,
                  std::int64_t trials_max, const SizeScore& score) {
  SizeSearch search(count, pipeline_stages, score);
  search.run_tapers();
  Random random(seed);
  search.run_free(random, trials_max);
}

}  // namespace troupe::balancer
