#include "balancer/microbatches/size_search.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "balancer/microbatches/taper.hpp"
#include "runtime/vocabulary/random.hpp"

namespace troupe::balancer {

namespace {

constexpr double kSizeLeast = 0.05;

// Changes that cost up to this share of the best score are taken at first, and ever smaller ones
// later on: the score has corners that no single change leads out of. In a short search less, as it
// would not find back.
constexpr double kLossMax = 0.003;
constexpr double kLongSearch = 10'000;

enum class Sides { both, encoder, llm };

class SizeSearch {
 public:
  SizeSearch(const SizeSearchOptions& options, const SizeScore& score)
      : options_(options),
        stages_(static_cast<double>(options.pipeline_stages)),
        score_(score),
        random_(options.seed) {}

  void run_tapers() {
    for (const auto& start : starts()) try_taper(start);
    for (const double step : {1.6, 1.25, 1.1})
      for (bool better = true; better && !spent_;) {
        better = false;
        for (const auto& neighbour : neighbours(taper_, step))
          if (!spent_ && !(neighbour == taper_) && try_taper(neighbour)) better = true;
      }
  }

  void run_free() {
    if (!options_.start.empty()) try_sizes(options_.start);
    auto current = sizes_;
    const auto trials = static_cast<double>(options_.trials_max);
    const double loss_max = kLossMax * std::min(1.0, trials / kLongSearch);
    for (std::int64_t trial = 0; trial < options_.trials_max && !spent_; ++trial) {
      auto tried = allowed(some_change(current.size()).applied(current));
      const double loss = loss_max * (1 - static_cast<double>(trial) / trials);
      const auto score = ask(tried);
      if (!score || *score > best_ * (1 + loss)) continue;
      keep_better(tried, *score);
      current = std::move(tried);
    }
  }

  std::vector<Workload> finish() { return std::move(sizes_); }

 private:
  // What a change does to one side. A hat: sizes around a peak grow or shrink, by ever less towards
  // both ends of a stretch; a run: all of the stretch alike. The bound of a step counts the least
  // microbatch and its length the largest, so these move together where there are several.
  enum class Form { hat, run, raise_least, lower_largest };

  struct Change {
    Form form = Form::hat;
    Sides sides = Sides::both;
    double step = 0;  // Logarithm of the factor.
    double peak = 0;
    double before = 1;  // Microbatches to either end.
    double after = 1;

    std::vector<Workload> applied(std::vector<Workload> sizes) const {
      if (sides != Sides::llm) apply(sizes, &Workload::encoder_ms);
      if (sides != Sides::encoder) apply(sizes, &Workload::llm_ms);
      return sizes;
    }

    void apply(std::vector<Workload>& sizes, double Workload::*side) const {
      const auto [least, largest] = std::minmax_element(
          sizes.begin(), sizes.end(), [&](auto& a, auto& b) { return a.*side < b.*side; });
      const double low = (*least).*side * std::exp(std::abs(step));
      const double high = (*largest).*side * std::exp(-std::abs(step));
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const double from_peak = static_cast<double>(i) - peak;
        const double near = 1 - (from_peak < 0 ? -from_peak / before : from_peak / after);
        double& size = sizes[i].*side;
        switch (form) {
          case Form::hat: size *= std::exp(step * std::max(0.0, near)); break;
          case Form::run: size *= near > 0 ? std::exp(step) : 1; break;
          case Form::raise_least: size = std::max(size, low); break;
          case Form::lower_largest: size = std::min(size, high); break;
        }
      }
    }
  };

  Change some_change(std::size_t count) {
    const auto length = [&] {
      // Up to 1, 2, 4, ... microbatches: short and long ones are as frequent.
      const auto scale = static_cast<double>(random_.below(std::bit_width(count)));
      return std::exp2(scale) * (1e-3 + random_.uniform());
    };
    constexpr Form kForms[] = {Form::hat, Form::hat, Form::hat,         Form::hat,
                               Form::run, Form::run, Form::raise_least, Form::lower_largest};
    Change change;
    change.form = kForms[random_.below(std::size(kForms))];
    if (options_.tilt > 0) change.sides = static_cast<Sides>(random_.below(3));
    // Large steps find the shape, small ones the last half percent.
    change.step = (random_.below(2) == 0 ? 0.25 : 0.06) * (2 * random_.uniform() - 1);
    change.peak = static_cast<double>(random_.below(count));
    change.before = length();
    change.after = length();
    return change;
  }

  // Scaled so that the largest encoder size is 1 and both sides add up to the same; none below the
  // least, none tilted further than samples allow.
  std::vector<Workload> allowed(std::vector<Workload> sizes) const {
    double largest = 0;
    for (const auto& size : sizes) largest = std::max(largest, size.encoder_ms);
    const auto sum = total(sizes);
    for (auto& size : sizes) {
      size.encoder_ms = std::max(kSizeLeast, size.encoder_ms / largest);
      size.llm_ms =
          std::clamp(size.llm_ms / largest * sum.encoder_ms / sum.llm_ms,
                     (1 - options_.tilt) * size.encoder_ms, (1 + options_.tilt) * size.encoder_ms);
    }
    return sizes;
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
    if (!try_sizes(taper_sizes(taper, options_.count))) return false;
    taper_ = taper;
    return true;
  }

  std::optional<double> ask(std::span<const Workload> sizes) {
    const auto score = score_(sizes);
    spent_ = !score;
    return score;
  }

  bool keep_better(const std::vector<Workload>& sizes, double score) {
    if (!sizes_.empty() && score >= best_) return false;
    best_ = score;
    sizes_ = sizes;
    return true;
  }

  // True if they are the best so far.
  bool try_sizes(const std::vector<Workload>& sizes) {
    const auto score = spent_ ? std::nullopt : ask(sizes);
    return score && keep_better(sizes, *score);
  }

  const SizeSearchOptions& options_;
  double stages_;
  const SizeScore& score_;
  Random random_;
  bool spent_ = false;
  double best_ = 0;
  Taper taper_;
  std::vector<Workload> sizes_;  // The best so far; empty before the first.
};

}  // namespace

std::vector<Workload> search_sizes(const SizeSearchOptions& options, const SizeScore& score) {
  SizeSearch search(options, score);
  if (options.start.empty()) search.run_tapers();
  search.run_free();
  return search.finish();
}

}  // namespace troupe::balancer
