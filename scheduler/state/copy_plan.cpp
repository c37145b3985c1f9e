#include "scheduler/state/copy_plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "scheduler/state/copy_flow.hpp"

namespace troupe::scheduler {

namespace {

constexpr std::int64_t kBytesMax = std::int64_t{1} << 62;
constexpr std::int64_t kCopyTries = 20'000'000;

// Copies per job and sender, parallel to `CopyJob::senders`.
using Counts = std::vector<std::vector<std::int64_t>>;

class Balancer {
 public:
  Balancer(const std::vector<CopyJob>& jobs, std::int32_t sender_count, std::int64_t search_steps)
      : jobs_(jobs),
        search_steps_(search_steps),
        loads_(static_cast<std::size_t>(sender_count), 0) {
    // Large copies first, and those with the fewest senders first among equals: what is hard to
    // place is placed while there is room.
    sends_.resize(loads_.size());
    for (std::size_t i = 0; i < jobs.size(); ++i)
      for (std::size_t s = 0; s < jobs[i].senders.size(); ++s)
        sends_[sender(i, s)].push_back({i, s});
    order_.resize(jobs.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      if (jobs[a].bytes != jobs[b].bytes) return jobs[a].bytes > jobs[b].bytes;
      return jobs[a].senders.size() < jobs[b].senders.size();
    });
  }

  void solve() {
    keep(greedy(empty()));
    find_bound();
    close_gap();
  }

  const Counts& best() const { return best_; }
  std::int64_t max() const { return best_max_; }
  std::int64_t bound() const { return bound_; }

 private:
  Counts empty() const {
    Counts counts;
    for (const auto& job : jobs_) counts.emplace_back(job.senders.size(), 0);
    return counts;
  }

  std::vector<std::int64_t> loads_of(const Counts& counts) const {
    std::vector<std::int64_t> loads(loads_.size(), 0);
    for (std::size_t i = 0; i < jobs_.size(); ++i)
      for (std::size_t s = 0; s < counts[i].size(); ++s)
        loads[static_cast<std::size_t>(jobs_[i].senders[s])] += counts[i][s] * jobs_[i].bytes;
    return loads;
  }

  // Gives every copy that is missing in `counts` to the sender with the least load.
  Counts greedy(Counts counts) {
    auto loads = loads_of(counts);
    for (const auto i : order_) {
      const auto& job = jobs_[i];
      auto left = job.count - std::accumulate(counts[i].begin(), counts[i].end(), std::int64_t{0});
      for (; left > 0; --left) {
        std::size_t least = 0;
        for (std::size_t s = 1; s < job.senders.size(); ++s)
          if (loads[sender(i, s)] < loads[sender(i, least)]) least = s;
        ++counts[i][least];
        loads[sender(i, least)] += job.bytes;
      }
    }
    improve(counts, loads);
    return counts;
  }

  std::size_t sender(std::size_t job, std::size_t s) const {
    return static_cast<std::size_t>(jobs_[job].senders[s]);
  }

  // Relieves the most loaded sender while that lowers it below the old maximum: a copy moves to
  // another sender, which may pass on a smaller one in turn (back to the first: a swap).
  void improve(Counts& counts, std::vector<std::int64_t>& loads) {
    while (!loads.empty() && tries_ < kCopyTries) {
      const auto top =
          static_cast<std::size_t>(std::max_element(loads.begin(), loads.end()) - loads.begin());
      if (!relieve(top, counts, loads)) return;
    }
  }

  bool relieve(std::size_t top, Counts& counts, std::vector<std::int64_t>& loads) {
    for (const auto& [i, f] : sends_[top]) {
      if (counts[i][f] == 0) continue;
      for (std::size_t s = 0; s < counts[i].size(); ++s) {
        const auto to = sender(i, s);
        if (to == top) continue;
        const auto excess = loads[to] + jobs_[i].bytes - loads[top] + 1;  // To be passed on.
        if (excess > 0 && !pass_on(to, excess, top, jobs_[i].bytes, counts, loads)) continue;
        move(i, f, s, counts, loads);
        return true;
      }
    }
    return false;
  }

  // Moves a copy of at least `excess` and less than `incoming` bytes off `from` to a sender that
  // stays below the maximum, or back to `top`.
  bool pass_on(std::size_t from, std::int64_t excess, std::size_t top, std::int64_t incoming,
               Counts& counts, std::vector<std::int64_t>& loads) {
    for (const auto& [i, f] : sends_[from]) {
      const auto bytes = jobs_[i].bytes;
      if (counts[i][f] == 0 || bytes < excess) continue;
      for (std::size_t s = 0; s < counts[i].size(); ++s) {
        ++tries_;
        const auto to = sender(i, s);
        if (to == from) continue;
        if (to == top ? bytes >= incoming : loads[to] + bytes >= loads[top]) continue;
        move(i, f, s, counts, loads);
        return true;
      }
    }
    return false;
  }

  void move(std::size_t i, std::size_t f, std::size_t s, Counts& counts,
            std::vector<std::int64_t>& loads) const {
    --counts[i][f], ++counts[i][s];
    loads[sender(i, f)] -= jobs_[i].bytes, loads[sender(i, s)] += jobs_[i].bytes;
  }

  void keep(Counts counts) {
    const auto loads = loads_of(counts);
    const auto max = loads.empty() ? 0 : *std::max_element(loads.begin(), loads.end());
    if (max >= best_max_) return;
    best_max_ = max;
    best_ = std::move(counts);
  }

  // The least limit that the relaxation allows; its flow, rounded down and completed, is a plan.
  // Loads are multiples of what divides all sizes, and so are the limits that differ.
  void find_bound() {
    std::int64_t largest = 0, total = 0;
    for (const auto& job : jobs_) {
      largest = std::max(largest, job.bytes);
      total += job.bytes * job.count;
      unit_ = std::gcd(unit_, job.bytes);
    }
    if (jobs_.empty()) return;
    const auto senders = static_cast<std::int64_t>(loads_.size());
    const auto mean = total / senders + (total % senders > 0);
    auto low = std::max(largest / unit_, mean / unit_ + (mean % unit_ > 0));
    auto high = best_max_ / unit_;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      const auto flow = split_flow(jobs_, static_cast<std::int32_t>(loads_.size()), middle * unit_);
      if (flow.empty()) {
        low = middle + 1;
        continue;
      }
      high = middle;
      Counts counts = empty();
      for (std::size_t i = 0; i < jobs_.size(); ++i)
        for (std::size_t s = 0; s < counts[i].size(); ++s)
          counts[i][s] = flow[i][s] / jobs_[i].bytes;
      keep(greedy(std::move(counts)));
    }
    bound_ = low * unit_;
  }

  // Bisection over limits: a plan found lowers the maximum, a limit refuted raises the bound. A
  // search that runs out of steps decides nothing; then larger limits are tried, which can still
  // give a better plan.
  void close_gap() {
    // What can go to few senders only decides most limits, so it is placed first.
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return jobs_[a].senders.size() < jobs_[b].senders.size();
    });
    if (jobs_.empty()) return;
    for (auto low = bound_ / unit_; low < best_max_ / unit_;) {
      const auto limit = low + (best_max_ / unit_ - 1 - low) / 2;
      const auto outcome = search(limit * unit_);
      if (outcome == Outcome::found) continue;
      low = limit + 1;
      if (outcome == Outcome::refuted) bound_ = low * unit_;
    }
  }

  enum class Outcome : std::uint8_t { found, refuted, undecided };

  // Depth-first over single copies under a limit; a plan that is found is kept.
  Outcome search(std::int64_t limit) {
    limit_ = limit;
    steps_ = 0;
    trial_ = empty();
    std::fill(loads_.begin(), loads_.end(), 0);
    if (place_all()) return Outcome::found;
    return steps_ < search_steps_ ? Outcome::refuted : Outcome::undecided;
  }

  // A copy of the job at `position` in `order_`, and the sender it goes to next. Copies of a job
  // are alike, so they go to senders in ascending order.
  struct Placement {
    std::size_t position = 0;
    std::int64_t copy = 0;
    std::size_t sender = 0;
  };

  // Depth-first with a stack of its own: there may be hundreds of thousands of copies.
  bool place_all() {
    std::vector<Placement> placed;
    Placement next;
    for (;;) {
      if (++steps_ >= search_steps_) return false;
      if (next.position < order_.size() && next.copy == jobs_[order_[next.position]].count) {
        next = {next.position + 1, 0, 0};
        continue;
      }
      if (next.position == order_.size()) return keep(trial_), true;
      // Back until a copy can go to a later sender than before.
      while (!place(next)) {
        if (placed.empty()) return false;
        next = placed.back();
        placed.pop_back();
        take_back(next);
        ++next.sender;
      }
      placed.push_back(next);
      ++next.copy;
    }
  }

  // Gives a copy to the first sender from `next.sender` on that has room.
  bool place(Placement& next) {
    const auto i = order_[next.position];
    const auto& job = jobs_[i];
    std::int64_t room = 0;  // Copies that the senders left for this job can still take.
    for (std::size_t s = next.sender; s < job.senders.size(); ++s)
      room += (limit_ - loads_[sender(i, s)]) / job.bytes;
    if (room < job.count - next.copy) return false;
    while (loads_[sender(i, next.sender)] + job.bytes > limit_) ++next.sender;
    loads_[sender(i, next.sender)] += job.bytes;
    ++trial_[i][next.sender];
    return true;
  }

  void take_back(const Placement& last) {
    const auto i = order_[last.position];
    loads_[sender(i, last.sender)] -= jobs_[i].bytes;
    --trial_[i][last.sender];
  }

  const std::vector<CopyJob>& jobs_;
  const std::int64_t search_steps_;
  std::vector<std::size_t> order_;
  std::vector<std::vector<std::pair<std::size_t, std::size_t>>> sends_;  // Jobs of a sender.
  std::vector<std::int64_t> loads_;
  std::int64_t tries_ = 0;
  Counts best_, trial_;
  std::int64_t best_max_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t bound_ = 0;
  std::int64_t unit_ = 0;  // Divides all sizes.
  std::int64_t limit_ = 0;
  std::int64_t steps_ = 0;
};

// One item without duplicates, and the receivers that lack it.
struct Wanted {
  std::vector<std::int64_t> holders;
  std::vector<std::int64_t> receivers;
};

Result<std::vector<Wanted>> read(const std::vector<CopyItem>& items) {
  std::vector<Wanted> all;
  std::string orphans;
  double total = 0;
  for (const auto& item : items) {
    const std::set<std::int64_t> holders(item.holders.begin(), item.holders.end());
    std::set<std::int64_t> receivers(item.needs.begin(), item.needs.end());
    for (const auto holder : holders) receivers.erase(holder);
    const bool negative = item.bytes < 0 || (!holders.empty() && *holders.begin() < 0) ||
                          (!receivers.empty() && *receivers.begin() < 0);
    total += static_cast<double>(item.bytes) * static_cast<double>(receivers.size());
    if (negative || total > static_cast<double>(kBytesMax))
      return Error{Errc::invalid_argument,
                   negative ? "bytes and ranks must be >= 0" : "the copies exceed 2^62 bytes",
                   "layer '" + item.name + "'",
                   {}};
    if (holders.empty() && !receivers.empty())
      orphans += (orphans.empty() ? "'" : ", '") + item.name + "'";
    all.push_back({{holders.begin(), holders.end()}, {receivers.begin(), receivers.end()}});
  }
  if (!orphans.empty())
    return Error{Errc::infeasible, "no rank that is left holds " + orphans, "holders",
                 "resume from a checkpoint, or name a holder"};
  return all;
}

// Hands a job's receivers, ascending, to its senders, ascending.
void write_copies(std::size_t item, const Wanted& wanted, const std::vector<std::int64_t>& counts,
                  std::vector<Copy>& copies) {
  auto receiver = wanted.receivers.begin();
  for (std::size_t s = 0; s < counts.size(); ++s)
    for (std::int64_t i = 0; i < counts[s]; ++i)
      copies.push_back({static_cast<std::int32_t>(item), wanted.holders[s], *receiver++});
}

}  // namespace

Result<CopyPlan> plan_copies(const std::vector<CopyItem>& items, std::int64_t search_steps) {
  auto wanted = read(items);
  if (!wanted.ok()) return wanted.error();
  const auto& all = wanted.value();
  std::vector<std::int64_t> ranks;
  for (const auto& item : all)
    if (!item.receivers.empty())
      ranks.insert(ranks.end(), item.holders.begin(), item.holders.end());
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());

  std::vector<CopyJob> jobs;
  std::vector<std::size_t> job_item;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (all[i].receivers.empty() || items[i].bytes == 0) continue;
    CopyJob job{items[i].bytes, static_cast<std::int64_t>(all[i].receivers.size()), {}};
    for (const auto holder : all[i].holders)
      job.senders.push_back(static_cast<std::int32_t>(
          std::lower_bound(ranks.begin(), ranks.end(), holder) - ranks.begin()));
    jobs.push_back(std::move(job));
    job_item.push_back(i);
  }
  Balancer balancer(jobs, static_cast<std::int32_t>(ranks.size()), search_steps);
  balancer.solve();
  CopyPlan plan;
  plan.max_sent_bytes = balancer.max();
  plan.lower_bound_bytes = balancer.bound();
  for (std::size_t i = 0, job = 0; i < items.size(); ++i) {
    if (job < job_item.size() && job_item[job] == i) {
      write_copies(i, all[i], balancer.best()[job++], plan.copies);
    } else if (!all[i].receivers.empty()) {  // Empty state: any holder will do.
      write_copies(i, all[i], {static_cast<std::int64_t>(all[i].receivers.size())}, plan.copies);
    }
  }
  std::sort(plan.copies.begin(), plan.copies.end(), [](const Copy& a, const Copy& b) {
    return a.item != b.item ? a.item < b.item : a.to < b.to;
  });
  return plan;
}

}  // namespace troupe::scheduler
