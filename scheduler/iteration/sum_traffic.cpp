#include "scheduler/iteration/sum_traffic.hpp"

#include <algorithm>
#include <cstddef>
#include <map>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/rank_links.hpp"

namespace troupe::scheduler {

SumTraffic::SumTraffic(const ParallelPlan& plan, GroupId group)
    : plan_(plan), group_(plan.groups[group.index()]), sum_(plan_sum(plan, group)) {
  for (const SumRole& role : sum_.roles)
    for (const DeviceId rank : role.ranks) actors_.push_back({plan.lead_of(rank), role.place});
  std::ranges::sort(actors_);
  actors_.erase(std::ranges::unique(actors_).begin(), actors_.end());
  for (std::size_t k = 0; k < kSumActions.size(); ++k) {
    DeviceId last;  // Of those that act.
    for (const Actor& actor : actors_)
      if (actor.lead != last && sum_.roles[at(actor.place)].acts(kSumActions[k]))
        last = actor.lead, ++lists_[k];
  }
}

std::int32_t SumTraffic::lists(ActionKind kind) const {
  for (std::size_t k = 0; k < kSumActions.size(); ++k)
    if (kSumActions[k] == kind) return lists_[k];
  return 0;
}

double SumTraffic::of_rank(std::int64_t elements, std::int32_t from, std::int32_t to) const {
  if (from == 1 && to == 1) return static_cast<double>(elements);
  std::int64_t whole = group_.elements;  // What all ranks keep.
  for (const SplitElements& split : group_.splits) whole -= split.elements;
  const std::int64_t own = group_.elements_at(from) - whole;
  return static_cast<double>(elements) *
         static_cast<double>(own + whole * ((to + from - 1) / from)) /
         static_cast<double>(group_.elements);
}

std::span<const SumTraffic::Actor> SumTraffic::of(DeviceId lead) const {
  return std::ranges::equal_range(actors_, lead, {}, &Actor::lead);
}

LinkElements SumTraffic::sent(DeviceId lead, ActionKind kind) const {
  LinkElements most{};
  for (const Actor& actor : of(lead)) {
    const SumRole& from = sum_.roles[at(actor.place)];
    if (!from.acts(kind)) continue;
    LinkElements own{};
    for (const SumTransfer& transfer : sum_.sent(from.place, kind)) {
      const SumRole& to = sum_.roles[at(transfer.holder)];
      own[static_cast<std::size_t>(link_class(plan_, from.ranks, to.ranks))] +=
          of_rank(sum_.chunks[transfer.chunk].size(), from.tp(), to.tp());
    }
    for (std::size_t link = 0; link < own.size(); ++link)
      most[link] = std::max(most[link], own[link]);
  }
  return most;
}

CallShape SumTraffic::call() const {
  if (!sum_.is_call) return {};
  std::map<NodeId, std::int64_t> on_node;
  for (const DeviceId holder : group_.holders) ++on_node[plan_.devices[holder.index()].node];
  CallShape shape{std::ssize(group_.holders), std::ssize(on_node), 0, std::ssize(group_.holders)};
  for (const auto& [node, count] : on_node) {
    shape.most = std::max(shape.most, count);
    shape.least = std::min(shape.least, count);
  }
  return shape;
}

SumTraffic::Added SumTraffic::added(DeviceId lead, ActionKind kind) const {
  if (sum_.is_call)
    return {static_cast<double>(group_.elements) / static_cast<double>(sum_.roles.size()),
            static_cast<std::int32_t>(sum_.roles.size()) - 1};
  Added most;
  if (kind == ActionKind::reduce_receive) return most;
  for (const Actor& actor : of(lead)) {
    const SumRole& role = sum_.roles[at(actor.place)];
    if (!role.acts(kind)) continue;
    const std::size_t home = sum_.branch_of[at(role.place)];
    const bool partial = kind == ActionKind::reduce_partial;
    most.elements =
        std::max(most.elements, of_rank(partial ? role.partials : role.adds, role.tp(), role.tp()));
    most.times = sum_.branches[home].users - 1;  // The same for all of a list: one node's.
    for (std::size_t b = 0; b < sum_.branches.size() && !partial; ++b)
      if (b != home && sum_.branches[b].users > 0) ++most.times;
  }
  return most;
}

}  // namespace troupe::scheduler
