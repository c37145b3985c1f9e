// What the lists of a plan exchange to add up the gradients of a parameter group.
//
// Pure. Helper of simulate_plan.cpp.

#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/vocabulary/gradient_sum.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::scheduler {

/// Elements that a device sends over each link (`LinkClass`).
using LinkElements = std::array<double, 3>;

/// Who takes part in a call to NCCL: holders of one device each.
struct CallShape {
  std::int64_t holders = 0;          ///< 0: there is no call.
  std::int64_t nodes = 0;            ///< On which they are.
  std::int64_t most = 0, least = 0;  ///< So many of them on one node.
};

/// Of one group; the plan outlives it. A device that leads others speaks for all of them: each
/// sends and adds as many elements as is said, over links of its own.
class SumTraffic {
 public:
  /// Cost: linear in uses and, times their logarithm, in holders; in a tree in nodes.
  SumTraffic(const ParallelPlan& plan, GroupId group);

  /// How many lists have this action of a sum.
  std::int32_t lists(ActionKind kind) const;

  /// What the list of `lead` sends in this action. Where holders of one list differ, that of the
  /// one that sends most over a link. Cost: linear in what they send. REQUIRES: no call to NCCL.
  LinkElements sent(DeviceId lead, ActionKind kind) const;

  /// Who calls NCCL, which moves what it likes (nccl_call.hpp). Cost: linear in holders.
  CallShape call() const;

  /// Elements that each device of this list adds others to, and how many times to each of them.
  struct Added {
    double elements = 0;
    std::int32_t times = 0;
  };
  /// In `reduce_partial` or `reduce`, or in `reduce_receive` of a call, where each holder adds up
  /// a share. Cost: linear in nodes.
  Added added(DeviceId lead, ActionKind kind) const;

 private:
  /// Elements that each rank of a holder with `from` ranks sends to hand `elements` of the group to
  /// one with `to` ranks: what tensor parallelism splits goes once, the rest to each that keeps it.
  double of_rank(std::int64_t elements, std::int32_t from, std::int32_t to) const;
  /// A holder, and who runs the list of ranks of it.
  struct Actor {
    DeviceId lead;
    std::int32_t place = 0;

    friend auto operator<=>(const Actor&, const Actor&) = default;
  };
  /// Those of a list.
  std::span<const Actor> of(DeviceId lead) const;

  const ParallelPlan& plan_;
  const ParameterGroup& group_;
  GroupSum sum_;
  std::vector<Actor> actors_;  ///< Ascending.
  std::array<std::int32_t, kSumActions.size()> lists_{};
};

}  // namespace troupe::scheduler
