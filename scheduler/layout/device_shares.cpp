#include "scheduler/layout/device_shares.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/vocabulary/index.hpp"

namespace troupe::scheduler {

namespace {

constexpr std::int32_t kAllReplicas = 64;  ///< On so many devices every number is looked at.
constexpr double kNone = std::numeric_limits<double>::infinity();

/// Microbatches of the busiest replica of a group.
std::int64_t turns(const ShareRequest& request, bool llm, std::int32_t replicas) {
  if (llm) return request.microbatches;
  return (request.microbatches * request.llm_replicas + replicas - 1) / replicas;
}

/// No cut into so many stages has faster slowest ones, or spreads what is trained further.
GroupTimes bound_of(const GroupLoad& load, const GroupShare& share) {
  return {std::max(load.work_ms / share.stages, load.largest_layer_ms),
          load.trained_bytes / share.stages};
}

/// Encoders of one group on so many stages in all.
struct Option {
  GroupShare share;
  double ms = kNone;  ///< What the group takes without the way of the first microbatch.
};

class Sharing {
 public:
  explicit Sharing(const ShareRequest& request)
      : request_(request), encoders_(request.groups.size() - 1) {}

  std::vector<DeviceShare> run() && {
    const GroupLoad& llm = request_.groups.back();
    const std::int32_t width = request_.groups.front().width;
    std::int32_t least = 0;  // Devices of the encoders.
    for (std::size_t g = 0; g < encoders_ && !request_.colocated; ++g)
      least += width * request_.groups[g].pinned.value_or(1);
    if (encoders_ > 1 && !request_.colocated)
      make_tables((request_.devices - request_.llm_replicas * llm.width) / width);
    const std::int32_t step = request_.may_idle ? request_.llm_replicas : 1;
    for (std::int32_t stages = request_.llm_replicas;
         stages <= request_.llm_replicas * llm.layers &&
         stages * llm.width + least <= request_.devices;
         stages += step) {
      const auto own = split(request_.llm_replicas, stages);
      if (!fits(llm, own)) continue;
      if (request_.colocated) {
        if (request_.may_idle || stages * llm.width == request_.devices) add_colocated(own);
        continue;
      }
      const auto left = (request_.devices - stages * llm.width) / width;
      if (encoders_ == 1)
        add_single(own, left);
      else
        add_several(own, left);
    }
    return std::move(found_);
  }

 private:
  static GroupShare split(std::int32_t replicas, std::int32_t stages) {
    return {replicas, stages / replicas, stages % replicas};
  }

  bool fits(const GroupLoad& load, const GroupShare& share) const {
    if (share.stages + (share.longer > 0 ? 1 : 0) > load.layers) return false;
    return request_.device_memory == 0 ||
           std::max(load.bytes / share.stages, load.largest_layer_bytes) <= request_.device_memory;
  }

  /// Visits the share of `available` stages with so many replicas, if there is one; where devices
  /// may idle, with so many stages each.
  template <class Visit>
  void offer(const GroupLoad& load, std::int64_t replicas, std::int32_t stages,
             std::int32_t available, Visit visit) const {
    const auto microbatches = request_.microbatches * std::int64_t{request_.llm_replicas};
    if (replicas < 1 || replicas * stages > available) return;
    if (load.pinned ? *load.pinned != replicas : replicas > microbatches) return;
    const auto count = static_cast<std::int32_t>(replicas);
    const auto share = split(count, request_.may_idle ? count * stages : available);
    if (fits(load, share)) visit(share);
  }

  /// Every share of exactly `available` stages that could be the best one.
  template <class Visit>
  void each_whole(const GroupLoad& load, std::int32_t available, Visit visit) const {
    if (load.pinned) return offer(load, *load.pinned, 1, available, visit);
    if (available <= kAllReplicas) {
      for (auto replicas = available; replicas >= 1; --replicas)
        offer(load, replicas, 1, available, visit);
      return;
    }
    std::int32_t before = 0;
    for (std::int32_t stages = 1; stages <= std::min(load.layers, available); ++stages) {
      const std::int32_t replicas = available / stages;
      if (replicas != before) offer(load, replicas, stages, available, visit);
      before = replicas;
    }
  }

  /// Shares of up to `available` stages: as many replicas as there is room for, and as many as keep
  /// up with an llm of this pace.
  template <class Visit>
  void each_part(const GroupLoad& load, std::int32_t available, double llm_ms, Visit visit) const {
    for (std::int32_t stages = 1; stages <= std::min(load.layers, available); ++stages) {
      if (load.pinned) {
        offer(load, *load.pinned, stages, available, visit);
        continue;
      }
      const auto most = std::min<std::int64_t>(
          available / stages, request_.microbatches * std::int64_t{request_.llm_replicas});
      const double pace = bound_of(load, {1, stages, 0}).slowest_ms;
      const auto busy = static_cast<std::int64_t>(std::min(
          static_cast<double>(most), llm_ms > 0 ? request_.llm_replicas * pace / llm_ms : kNone));
      for (const auto replicas : {busy, busy + 1, most})
        if (replicas <= most) offer(load, replicas, stages, available, visit);
    }
  }

  void add_single(const GroupShare& llm, std::int32_t left) {
    const GroupLoad& load = request_.groups.front();
    const auto add_share = [&](const GroupShare& share) {
      trial_.assign({share, llm});
      add(trial_);
    };
    if (request_.may_idle)
      each_part(load, left, bound_of(request_.groups.back(), llm).slowest_ms, add_share);
    else
      each_whole(load, left, add_share);
  }

  /// Visits the shares of a group on so many places of the llm's devices.
  template <class Visit>
  void each_on(const GroupLoad& load, std::int32_t places, Visit visit) const {
    const auto microbatches = request_.microbatches * std::int64_t{request_.llm_replicas};
    const auto spread = [&](std::int32_t replicas) {
      if (replicas > (load.pinned ? places : std::min<std::int64_t>(places, microbatches))) return;
      auto share = split(replicas, places);
      if (share.stages + (share.longer > 0 ? 1 : 0) > load.layers)
        share = {replicas, std::min(load.layers, share.stages), 0};
      if (fits(load, share)) visit(share);
    };
    if (load.pinned) return spread(*load.pinned);
    if (places <= kAllReplicas) {
      for (auto replicas = places; replicas >= 1; --replicas) spread(replicas);
      return;
    }
    std::int32_t before = 0;
    for (std::int32_t stages = 1; stages <= std::min(load.layers, places); ++stages) {
      const std::int32_t replicas = places / stages;
      if (replicas != before) spread(replicas);
      before = replicas;
    }
  }

  void add_colocated(const GroupShare& llm) {
    std::vector<GroupShare> best;
    for (std::size_t g = 0; g < encoders_; ++g) {
      const GroupLoad& load = request_.groups[g];
      const auto places = llm.all_stages() * request_.groups.back().width / load.width;
      double least = kNone;
      each_on(load, places, [&](const GroupShare& share) {
        if (encoders_ == 1) {
          trial_.assign({share, llm});
          return add(trial_);
        }
        const double ms = alone_ms(load, share);
        if (ms >= least) return;
        if (least == kNone) best.emplace_back();
        least = ms;
        best.back() = share;
      });
    }
    if (encoders_ == 1 || best.size() < encoders_) return;
    best.push_back(llm);
    add(best);
  }

  /// What an encoder group takes by itself, but for the way of its first microbatch.
  double alone_ms(const GroupLoad& load, const GroupShare& share) const {
    const auto times = bound_of(load, share);
    return static_cast<double>(turns(request_, false, share.replicas)) * times.slowest_ms +
           request_.reduction_ms(share.replicas, share.stages * load.width, times.trained_bytes);
  }

  /// What each encoder group does best with each number of stages, alone.
  void make_tables(std::int32_t stages) {
    for (std::size_t g = 0; g < encoders_; ++g) {
      const GroupLoad& load = request_.groups[g];
      auto& table = tables_.emplace_back(at(std::max(stages, 0)) + 1);
      for (std::int32_t available = 1; available <= stages; ++available) {
        Option& best = table[at(available)];
        if (request_.may_idle) best = table[at(available - 1)];
        const auto compare = [&](const GroupShare& share) {
          const double ms = alone_ms(load, share);
          if (ms < best.ms) best = {share, ms};
        };
        // Of stages that may idle all smaller shares are known.
        for (std::int32_t each = 1; request_.may_idle && each <= load.layers; ++each)
          if (available % each == 0) offer(load, available / each, each, available, compare);
        if (!request_.may_idle) each_whole(load, available, compare);
      }
    }
    // Of all but the last group, which is joined where the number of stages is known.
    joined_.push_back({});
    for (const auto& option : tables_.front())
      joined_.back().push_back({{option.share}, option.ms});
    for (std::size_t g = 1; g + 1 < encoders_; ++g) {
      std::vector<Joined> next;
      for (std::int32_t all = 0; all <= stages; ++all) next.push_back(join(g, all));
      joined_.push_back(std::move(next));
    }
  }

  /// Several groups on so many stages in all.
  struct Joined {
    std::vector<GroupShare> shares;
    double ms = kNone;
  };

  /// The best way to share out `all` stages to group `g` and those before it.
  Joined join(std::size_t g, std::int32_t all) const {
    std::int32_t best = -1;
    double least = kNone;
    for (std::int32_t own = 1; own < all; ++own) {
      const double ms = std::max(tables_[g][at(own)].ms, joined_[g - 1][at(all - own)].ms);
      if (ms < least) least = ms, best = own;
    }
    if (best < 0) return {};
    Joined made = joined_[g - 1][at(all - best)];
    made.shares.push_back(tables_[g][at(best)].share);
    made.ms = least;
    return made;
  }

  void add_several(const GroupShare& llm, std::int32_t left) {
    auto made = join(encoders_ - 1, left);
    if (made.shares.empty()) return;
    made.shares.push_back(llm);
    add(made.shares);
  }

  void add(const std::vector<GroupShare>& groups) {
    if (std::all_of(groups.begin(), groups.end(), [&](const GroupShare& group) {
          return group.replicas == groups.front().replicas;
        }))
      return;  // One number for all: pipelines.
    times_.clear();
    for (std::size_t g = 0; g < groups.size(); ++g)
      times_.push_back(bound_of(request_.groups[g], groups[g]));
    const double ms = shared_step_ms(request_, groups, times_);
    if (ms > request_.bound_max_ms) return;
    if (found_.size() == request_.count && ms >= found_.back().bound_ms) return;
    const bool known = std::any_of(found_.begin(), found_.end(), [&](const DeviceShare& other) {
      return other.bound_ms == ms && other.groups == groups;
    });
    if (known) return;
    const auto place = std::upper_bound(
        found_.begin(), found_.end(), ms,
        [](double bound, const DeviceShare& other) { return bound < other.bound_ms; });
    found_.insert(place, {groups, ms});
    if (found_.size() > request_.count) found_.pop_back();
  }

  const ShareRequest& request_;
  const std::size_t encoders_;
  std::vector<std::vector<Option>> tables_;  ///< Per encoder group and number of stages.
  std::vector<std::vector<Joined>> joined_;  ///< Up to each group, by number of stages.
  std::vector<DeviceShare> found_;
  std::vector<GroupShare> trial_;  ///< Used again and again, as `times_`.
  std::vector<GroupTimes> times_;
};

}  // namespace

double shared_step_ms(const ShareRequest& request, const std::vector<GroupShare>& groups,
                      const std::vector<GroupTimes>& times) {
  const auto joined = [&](double a, double b) {
    return request.colocated ? a + b : std::max(a, b);
  };
  double encoder_ms = 0, turns_ms = 0, reduction_ms = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const bool llm = g + 1 == groups.size();
    const auto left = static_cast<double>(turns(request, llm, groups[g].replicas) - 1);
    turns_ms = joined(turns_ms, left * times[g].slowest_ms);
    if (!llm) encoder_ms = joined(encoder_ms, request.groups[g].work_ms);
    reduction_ms =
        joined(reduction_ms,
               request.reduction_ms(groups[g].replicas, groups[g].stages * request.groups[g].width,
                                    times[g].trained_bytes));
  }
  return encoder_ms + request.groups.back().work_ms + turns_ms + reduction_ms;
}

std::vector<DeviceShare> share_devices(const ShareRequest& request) {
  return Sharing(request).run();
}

}  // namespace troupe::scheduler
