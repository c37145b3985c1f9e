// What the lists of a plan exchange to add up the gradients of a parameter group.
//
// Pure. Helper of simulate_plan.cpp.

#pragma once

#include <array>
#include <cstdint>

#include "runtime/vocabulary/gradient_sum.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::scheduler {

/// Elements that a device sends over each link (`LinkClass`).
using LinkElements = std::array<double, 3>;

/// Of one group; the plan outlives it. A device that leads others speaks for all of them: each
/// sends and adds as many elements as is said, over links of its own.
class SumTraffic {
 public:
  /// Cost: linear in uses and holders.
  SumTraffic(const ParallelPlan& plan, GroupId group);

  /// How many lists give gradients to others, and how many add some up.
  std::int32_t senders() const { return senders_; }
  std::int32_t owners() const { return owners_; }

  /// What the list of `lead` sends: gradients to the owners of chunks, or the sums of its own
  /// chunks to all holders. Where holders of one list differ, that of the one that sends most.
  /// Cost: linear in holders.
  LinkElements sent(DeviceId lead, bool to_owners) const;

  /// Elements that each device of this list adds up. Cost: linear in holders.
  double added(DeviceId lead) const;

 private:
  /// Elements that each rank of a holder with `from` ranks sends to hand `elements` of the group to
  /// one with `to` ranks: what tensor parallelism splits goes once, the rest to each that keeps it.
  double of_rank(std::int64_t elements, std::int32_t from, std::int32_t to) const;
  bool speaks_for(DeviceId lead, const SumRole& role) const;

  const ParallelPlan& plan_;
  const ParameterGroup& group_;
  GroupSum sum_;
  std::int32_t senders_ = 0;
  std::int32_t owners_ = 0;
};

}  // namespace troupe::scheduler
