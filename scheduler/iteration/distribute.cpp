#include "scheduler/iteration/distribute.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>

namespace troupe::scheduler {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Groups in ascending T with their shares. Adding a microbatch to a member with n of them changes
// (n T - mean)^2 by T^2 (2 n + 1) - 2 mean T: a line in the mean. An exchange between two groups
// pays off on one side of the mean where their lines cross.
class Sweep {
 public:
  Sweep(std::vector<SpeedGroup> groups, std::int64_t microbatches, std::int64_t work_max)
      : groups_(std::move(groups)), shares_(groups_.size()), work_max_(work_max) {
    for (const auto& group : groups_) {
      inverse_sum_ += static_cast<double>(group.count) / group.microbatch_ms;
      pipelines_ += static_cast<double>(group.count);
    }
    for (const auto& group : groups_) {
      const double off = 1 / group.microbatch_ms - inverse_sum_ / pipelines_;
      inverse_spread_ += static_cast<double>(group.count) * off * off;
    }
    target_ = static_cast<double>(microbatches) / inverse_sum_;
    microbatches_ = microbatches;
  }

  GroupDistribution solve() {
    solve_at(target_);
    consider();
    // Any solution with a smaller deviation has its mean within `window()` of the target, because
    // the deviations d_i of the optimum obey sum d_i = 0 and mean = target - sum d_i / T_i / sum
    // 1/T_i (Cauchy-Schwarz).
    solve_at(target_ - window());
    consider();
    if (!sweep(work_max_ / 2)) {
      // Too many solutions: those from the target on are the likelier half.
      solve_at(target_);
      sweep(work_max_);
      best_.optimal = false;
    }
    best_.work = work_;
    return best_;
  }

 private:
  // Every solution up to the end of the window, unless the work runs out.
  bool sweep(std::int64_t work_max) {
    while (exchange_next(target_ + window())) {
      consider();
      if (work_ > work_max) return false;
    }
    return true;
  }

  double window() const {
    return std::sqrt(best_.deviation * inverse_spread_) / inverse_sum_ * (1 + 1e-9);
  }

  // Slope-free part of the cost of adding to a group, and of the gain of taking from it.
  double add_cost(std::size_t i) const {
    const double t = groups_[i].microbatch_ms;
    return t * t * static_cast<double>(2 * shares_[i].microbatches + 1);
  }
  double take_gain(std::size_t i) const {
    if (shares_[i].extra > 0) return add_cost(i);
    if (shares_[i].microbatches <= 1) return -kInfinity;
    const double t = groups_[i].microbatch_ms;
    return t * t * static_cast<double>(2 * shares_[i].microbatches - 1);
  }
  void add(std::size_t i) {
    auto& share = shares_[i];
    if (++share.extra == groups_[i].count) share.extra = 0, ++share.microbatches;
  }
  void take(std::size_t i) {
    auto& share = shares_[i];
    if (share.extra-- == 0) share.extra = groups_[i].count - 1, --share.microbatches;
  }

  // The optimum for a fixed mean: the continuous solution rounded down, then filled greedily.
  void solve_at(double mean) {
    const auto counted = [&](double multiplier) {
      double sum = 0;
      for (const auto& group : groups_)
        sum += static_cast<double>(group.count) * continuous(group, mean, multiplier);
      return sum;
    };
    const auto wanted = static_cast<double>(microbatches_);
    const double slowest = groups_.back().microbatch_ms;
    double high = slowest * (std::abs(mean) + wanted * slowest), low = -high;
    for (;;) {
      const double middle = low + (high - low) / 2;
      if (middle <= low || middle >= high) break;
      (counted(middle) > wanted ? high : low) = middle;
    }
    std::int64_t left = microbatches_;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      shares_[i] = {
          std::max<std::int64_t>(1, static_cast<std::int64_t>(continuous(groups_[i], mean, low))),
          0};
      left -= shares_[i].microbatches * groups_[i].count;
    }
    for (; left > 0; --left) add(cheapest(mean));
    for (; left < 0; ++left) take(dearest(mean));
    improve_at(mean);
  }

  static double continuous(const SpeedGroup& group, double mean, double multiplier) {
    const double t = group.microbatch_ms;
    return std::max(1.0, (mean + multiplier / t) / t);
  }

  std::size_t cheapest(double mean) const {
    std::size_t best = 0;
    double least = kInfinity;
    for (std::size_t i = 0; i < groups_.size(); ++i)
      if (const double cost = add_cost(i) - 2 * mean * groups_[i].microbatch_ms; cost < least)
        least = cost, best = i;
    return best;
  }
  std::size_t dearest(double mean) const {
    std::size_t best = 0;
    double most = -kInfinity;
    for (std::size_t i = 0; i < groups_.size(); ++i)
      if (const double gain = take_gain(i) - 2 * mean * groups_[i].microbatch_ms; gain > most)
        most = gain, best = i;
    return best;
  }

  void improve_at(double mean) {
    for (;;) {
      const std::size_t to = cheapest(mean), from = dearest(mean);
      if (to == from) return;
      const double cost = add_cost(to) - 2 * mean * groups_[to].microbatch_ms;
      const double gain = take_gain(from) - 2 * mean * groups_[from].microbatch_ms;
      if (!(cost < gain - 1e-12 * (std::abs(cost) + std::abs(gain)))) return;
      take(from);
      add(to);
    }
  }

  struct Exchange {
    double mean = kInfinity;  ///< From here on it pays off.
    std::size_t to = 0, from = 0;
  };

  // The exchange towards a slower pipeline that pays off first as the mean grows: the least ratio
  // (add_cost - take_gain) / (2 (T_to - T_from)) over T_from < T_to, by Dinkelbach's iteration.
  Exchange next_exchange() {
    Exchange best;
    for (std::size_t i = 0; i + 1 < groups_.size(); ++i) improve(best, i + 1, i);
    while (best.mean < kInfinity) {
      const auto [to, from] = steepest(best.mean);
      if (!improve(best, to, from)) break;
    }
    return best;
  }

  // The pair with the largest gain at a mean. One pass keeps the best giver so far, so that only
  // pairs with T_from < T_to are seen.
  std::pair<std::size_t, std::size_t> steepest(double mean) {
    work_ += static_cast<std::int64_t>(groups_.size());
    std::pair<std::size_t, std::size_t> best{1, 0};
    double least = kInfinity, giver_gain = -kInfinity;
    for (std::size_t i = 0, giver = 0; i < groups_.size(); ++i) {
      const double drift = 2 * mean * groups_[i].microbatch_ms;
      if (const double value = add_cost(i) - drift - giver_gain; value < least)
        least = value, best = {i, giver};
      if (take_gain(i) - drift > giver_gain) giver_gain = take_gain(i) - drift, giver = i;
    }
    return best;
  }

  bool improve(Exchange& best, std::size_t to, std::size_t from) const {
    const double gain = take_gain(from);
    if (gain == -kInfinity) return false;
    const double mean =
        (add_cost(to) - gain) / (2 * (groups_[to].microbatch_ms - groups_[from].microbatch_ms));
    if (!(mean < best.mean)) return false;
    best = {mean, to, from};
    return true;
  }

  bool exchange_next(double end) {
    const Exchange next = next_exchange();
    if (!(next.mean <= end)) return false;
    take(next.from);
    add(next.to);
    return true;
  }

  void consider() {
    GroupDistribution now{shares_, 0, 0, 0, true};
    double sum = 0;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const auto& [microbatches, extra] = shares_[i];
      sum +=
          static_cast<double>(microbatches * groups_[i].count + extra) * groups_[i].microbatch_ms;
      now.max_ms = std::max(
          now.max_ms, static_cast<double>(microbatches + (extra > 0)) * groups_[i].microbatch_ms);
    }
    const double mean = sum / pipelines_;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const auto& [microbatches, extra] = shares_[i];
      const double low = static_cast<double>(microbatches) * groups_[i].microbatch_ms - mean;
      const double high = low + groups_[i].microbatch_ms;
      now.deviation += static_cast<double>(groups_[i].count - extra) * low * low +
                       static_cast<double>(extra) * high * high;
    }
    const double tolerance = 1e-11 * best_.deviation + 1e-22 * mean * mean;
    const bool tied = std::abs(now.deviation - best_.deviation) <= tolerance;
    if (best_.shares.empty() || (tied && now.max_ms < best_.max_ms) ||
        (!tied && now.deviation < best_.deviation))
      best_ = std::move(now);
  }

  std::vector<SpeedGroup> groups_;  // Ascending, distinct T.
  std::vector<MicrobatchShare> shares_;
  std::int64_t microbatches_ = 0;
  double pipelines_ = 0;
  double inverse_sum_ = 0;     // Sum of 1/T.
  double inverse_spread_ = 0;  // Sum of (1/T - mean of 1/T)^2.
  double target_ = 0;          // Mean of the continuous optimum.
  std::int64_t work_max_ = 0;
  std::int64_t work_ = 0;  // Groups looked at in the sweep.
  GroupDistribution best_;
};

std::optional<Error> check(std::span<const double> microbatch_ms, std::int64_t global_batch,
                           std::int64_t microbatch_size) {
  if (microbatch_ms.empty() || microbatch_ms.size() > kDistributePipelinesMax)
    return Error{Errc::invalid_argument,
                 "expected 1 to " + std::to_string(kDistributePipelinesMax) + " pipelines, found " +
                     std::to_string(microbatch_ms.size()),
                 "microbatch_ms",
                 {}};
  for (std::size_t i = 0; i < microbatch_ms.size(); ++i)
    if (auto error = check_speed(microbatch_ms[i], "microbatch_ms[" + std::to_string(i) + "]"))
      return error;
  const auto [fastest, slowest] = std::minmax_element(microbatch_ms.begin(), microbatch_ms.end());
  if (auto error = check_speed_ratio(*fastest, *slowest, "microbatch_ms")) return error;
  if (global_batch < 1 || microbatch_size < 1)
    return Error{Errc::invalid_argument,
                 "expected at least 1, found " +
                     std::to_string(global_batch < 1 ? global_batch : microbatch_size),
                 global_batch < 1 ? "global_batch" : "microbatch_size",
                 {}};
  const auto pipelines = static_cast<std::int64_t>(microbatch_ms.size());
  const bool divides = global_batch % microbatch_size == 0;
  if (divides && global_batch / microbatch_size >= pipelines) return std::nullopt;
  return Error{
      Errc::infeasible,
      "a batch of " + std::to_string(global_batch) +
          (divides ? " is too small for " + std::to_string(pipelines) +
                         " pipelines of at least one "
                         "microbatch of " +
                         std::to_string(microbatch_size)
                   : " is no multiple of the microbatch size " + std::to_string(microbatch_size)),
      "global_batch",
      "nearest batch that works: " +
          std::to_string(nearest_batch(global_batch, microbatch_size, pipelines))};
}

}  // namespace

std::optional<Error> check_speed(double microbatch_ms, const std::string& where) {
  if (microbatch_ms >= kMicrobatchMsMin && microbatch_ms <= kMicrobatchMsMax) return std::nullopt;
  std::ostringstream found;
  found << microbatch_ms;
  return Error{Errc::invalid_argument,
               "expected a time of 1e-9 to 1e12 ms per microbatch, found " + found.str(), where,
               "give milliseconds"};
}

std::optional<Error> check_speed_ratio(double fastest_ms, double slowest_ms,
                                       const std::string& where) {
  if (slowest_ms <= kSpeedRatioMax * fastest_ms) return std::nullopt;
  std::ostringstream found;
  found << "a microbatch takes " << slowest_ms << " ms on one pipeline and " << fastest_ms
        << " ms on another; more than a millionfold cannot share a batch";
  return Error{Errc::invalid_argument, found.str(), where, "leave the slowest pipeline out"};
}

GroupDistribution distribute_groups(std::span<const SpeedGroup> groups, std::int64_t microbatches,
                                    std::int64_t work_max) {
  // Equal speeds become one group: members of equal speed differ by at most one microbatch.
  std::map<double, std::vector<std::size_t>> by_speed;
  for (std::size_t i = 0; i < groups.size(); ++i) by_speed[groups[i].microbatch_ms].push_back(i);
  std::vector<SpeedGroup> merged;
  for (const auto& [ms, members] : by_speed) {
    merged.push_back({ms, 0});
    for (const auto i : members) merged.back().count += groups[i].count;
  }
  GroupDistribution solved = Sweep(std::move(merged), microbatches, work_max).solve();
  std::vector<MicrobatchShare> shares(groups.size());
  std::size_t next = 0;
  for (const auto& entry : by_speed) {
    const MicrobatchShare share = solved.shares[next++];
    std::int64_t extra = share.extra;
    for (const auto i : entry.second) {
      shares[i] = {share.microbatches, std::min(extra, groups[i].count)};
      extra -= shares[i].extra;
    }
  }
  solved.shares = std::move(shares);
  return solved;
}

Result<Distribution> distribute_proven(std::span<const double> microbatch_ms,
                                       std::int64_t global_batch, std::int64_t microbatch_size,
                                       std::int64_t work_max) {
  if (auto error = check(microbatch_ms, global_batch, microbatch_size)) return *error;
  std::vector<SpeedGroup> groups;
  for (const double ms : microbatch_ms) groups.push_back({ms, 1});
  const auto solved = distribute_groups(groups, global_batch / microbatch_size, work_max);
  Distribution made{{}, solved.optimal};
  for (const auto& share : solved.shares)
    made.microbatches.push_back(share.microbatches + share.extra);
  return made;
}

Result<std::vector<std::int64_t>> distribute(std::span<const double> microbatch_ms,
                                             std::int64_t global_batch,
                                             std::int64_t microbatch_size) {
  auto made = distribute_proven(microbatch_ms, global_batch, microbatch_size);
  if (!made.ok()) return std::move(made).error();
  return std::move(made).value().microbatches;
}

std::int64_t nearest_batch(std::int64_t global_batch, std::int64_t microbatch_size,
                           std::int64_t pipeline_count) {
  const std::int64_t below = global_batch / microbatch_size;
  if (below < pipeline_count) return pipeline_count * microbatch_size;
  const std::int64_t rest = global_batch % microbatch_size;
  return (rest > microbatch_size - rest ? below + 1 : below) * microbatch_size;
}

}  // namespace troupe::scheduler
