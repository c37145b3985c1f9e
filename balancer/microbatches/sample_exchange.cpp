#include "balancer/microbatches/sample_exchange.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/vocabulary/random.hpp"

namespace troupe::balancer {

namespace {

// Share of the score that a change may cost at first: out of small hollows, not out of the valley.
constexpr double kLossMax = 1e-4;
// What is left of sums that should be zero, as a share of all work: a module without rows takes no
// time, one with hardly any takes its constant time.
constexpr double kNothing = 1e-12;

class Exchange {
 public:
  Exchange(std::span<const Workload> workloads, SampleGroups groups, const ExchangeOptions& options)
      : workloads_(workloads),
        groups_(std::move(groups)),
        loads_(group_loads(workloads, groups_)),
        all_(total(workloads)),
        options_(options),
        random_(options.seed) {}

  SampleGroups run(const SizeScore& score) {
    auto current = score(loads_);
    double best = current.value_or(0);
    std::size_t best_changes = 0;
    for (std::int64_t trial = 1; current && trial < options_.trials_max; ++trial) {
      const auto change = some_change();
      if (!change) continue;
      const auto before = std::pair(loads_[change->from], loads_[change->to]);
      shift_loads(*change);
      const auto tried = score(loads_);
      const double left = 1 - static_cast<double>(trial) / static_cast<double>(options_.trials_max);
      if (!tried || *tried > *current * (1 + kLossMax * left * random_.uniform())) {
        std::tie(loads_[change->from], loads_[change->to]) = before;
        if (!tried) break;
        continue;
      }
      current = tried;
      apply(*change);
      changes_.push_back(*change);
      if (*current >= best) continue;
      best = *current;
      best_changes = changes_.size();
    }
    while (changes_.size() > best_changes) {
      undo(changes_.back());
      changes_.pop_back();
    }
    for (auto& group : groups_) std::sort(group.begin(), group.end());
    return std::move(groups_);
  }

 private:
  // The samples at these places change groups; without a second one, the first moves.
  struct Change {
    std::uint32_t from = 0, to = 0;
    std::uint32_t first = 0;
    std::optional<std::uint32_t> second = std::nullopt;
  };

  std::optional<Change> some_change() {
    const auto below = [&](std::size_t n) { return static_cast<std::uint32_t>(random_.below(n)); };
    Change change{.from = below(groups_.size()), .to = below(groups_.size())};
    const auto& from = groups_[change.from];
    const auto& to = groups_[change.to];
    if (change.from == change.to || from.size() < 2) return std::nullopt;
    change.first = below(from.size());
    if (!to.empty() && random_.below(2) == 0) change.second = below(to.size());
    return change;
  }

  const Workload& sample(std::size_t group, std::size_t place) const {
    return workloads_[static_cast<std::size_t>(groups_[group][place])];
  }

  void shift_loads(const Change& change) {
    shift(change.from, change.to, sample(change.from, change.first));
    if (change.second) shift(change.to, change.from, sample(change.to, *change.second));
    clear_rests(loads_[change.from]);
    clear_rests(loads_[change.to]);
  }
  void shift(std::size_t from, std::size_t to, const Workload& work) {
    loads_[from] -= work;
    loads_[to] += work;
  }
  void clear_rests(Workload& load) const {
    if (load.encoder_ms < kNothing * all_.encoder_ms) load.encoder_ms = 0;
    if (load.llm_ms < kNothing * all_.llm_ms) load.llm_ms = 0;
  }

  void apply(const Change& change) {
    auto& from = groups_[change.from];
    auto& to = groups_[change.to];
    if (change.second) return std::swap(from[change.first], to[*change.second]);
    to.push_back(std::exchange(from[change.first], from.back()));
    from.pop_back();
  }
  void undo(const Change& change) {
    if (change.second) return apply(change);
    auto& from = groups_[change.from];
    auto& to = groups_[change.to];
    from.push_back(to.back());
    to.pop_back();
    std::swap(from[change.first], from.back());
  }

  std::span<const Workload> workloads_;
  SampleGroups groups_;
  std::vector<Workload> loads_;
  Workload all_;
  const ExchangeOptions& options_;
  Random random_;
  std::vector<Change> changes_;
};

}  // namespace

SampleGroups exchange_samples(std::span<const Workload> workloads, SampleGroups groups,
                              const ExchangeOptions& options, const SizeScore& score) {
  return Exchange(workloads, std::move(groups), options).run(score);
}

}  // namespace troupe::balancer
