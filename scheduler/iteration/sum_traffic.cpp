#include "scheduler/iteration/sum_traffic.hpp"

#include <algorithm>
#include <cstddef>
#include <set>

#include "scheduler/iteration/rank_links.hpp"

namespace troupe::scheduler {

SumTraffic::SumTraffic(const ParallelPlan& plan, GroupId group)
    : plan_(plan), group_(plan.groups[group.index()]), sum_(plan_sum(plan, group)) {
  std::set<DeviceId> send, add;
  for (const SumRole& role : sum_.roles)
    for (const DeviceId lead : plan.leads_of(role.ranks)) {
      if (role.sends) send.insert(lead);
      if (role.adds > 0) add.insert(lead);
    }
  senders_ = static_cast<std::int32_t>(send.size());
  owners_ = static_cast<std::int32_t>(add.size());
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

bool SumTraffic::speaks_for(DeviceId lead, const SumRole& role) const {
  return std::ranges::any_of(role.ranks,
                             [&](DeviceId rank) { return plan_.lead_of(rank) == lead; });
}

LinkElements SumTraffic::sent(DeviceId lead, bool to_owners) const {
  LinkElements most{};
  for (const SumRole& from : sum_.roles) {
    if (!speaks_for(lead, from)) continue;
    LinkElements own{};
    const auto add = [&](const SumRole& to, std::int64_t elements) {
      if (to.place != from.place)
        own[static_cast<std::size_t>(link_class(plan_, from.ranks, to.ranks))] +=
            of_rank(elements, from.tp(), to.tp());
    };
    if (to_owners) {
      for (const SumChunk& chunk : sum_.chunks)
        if (from.sends) add(sum_.roles[static_cast<std::size_t>(chunk.owner)], chunk.size());
    } else {
      for (const SumRole& holder : sum_.roles) add(holder, from.adds);
    }
    for (std::size_t link = 0; link < own.size(); ++link)
      most[link] = std::max(most[link], own[link]);
  }
  return most;
}

double SumTraffic::added(DeviceId lead) const {
  double most = 0;
  for (const SumRole& role : sum_.roles)
    if (speaks_for(lead, role)) most = std::max(most, of_rank(role.adds, role.tp(), role.tp()));
  return most;
}

}  // namespace troupe::scheduler
