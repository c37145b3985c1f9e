#include "actors/coordination/membership.hpp"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace troupe::actors {

using Phase = Member::Phase;

std::int32_t tolerance_of(const StatePlacement& placement) {
  std::size_t fewest = std::numeric_limits<std::int32_t>::max();
  for (const Shard& shard : placement) {
    std::set<NodeId> nodes;
    for (const DeviceSlot& holder : shard.holders) nodes.insert(holder.node);
    fewest = std::min(fewest, nodes.size());
  }
  return placement.empty() ? 0 : static_cast<std::int32_t>(fewest) - 1;
}

std::map<NodeId, LossCost> loss_costs(const StatePlacement& placement, std::int32_t tolerance) {
  const std::size_t promised = static_cast<std::size_t>(tolerance) + 1;
  std::map<NodeId, LossCost> costs;
  for (const Shard& shard : placement) {
    std::set<NodeId> nodes;
    for (const DeviceSlot& holder : shard.holders) nodes.insert(holder.node);
    for (const NodeId node : nodes) {
      LossCost& cost = costs[node];
      if (nodes.size() == 1) ++cost.last_held;
      if (nodes.size() <= promised) ++cost.left_few;
    }
  }
  return costs;
}

std::set<NodeId> Membership::present() const {
  std::set<NodeId> nodes;
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (actors::takes_part(members_[i])) nodes.insert(NodeId{i});
  return nodes;
}

std::set<NodeId> Membership::staying() const {
  std::set<NodeId> nodes = present();
  for (const auto& [node, leaving] : leaving_) nodes.erase(node);
  return nodes;
}

std::optional<NodeId> Membership::free_place(std::int32_t wanted, std::int32_t local) const {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const NodeId node{i};
    // The head starts its own nodes once.
    const bool is_local = node.value < local && members_[i].phase == Phase::missing;
    const bool suits = wanted < 0 ? !is_local : node.value == wanted;
    if (suits && !actors::is_there(members_[i])) return node;
  }
  return std::nullopt;
}

void Membership::join(NodeId node, std::string host, std::int32_t pid, Time now) {
  members_[node.index()] = {Phase::joined, std::move(host), pid, false, {}, now};
  for (Shard& shard : placed_)
    std::erase_if(shard.holders, [node](const DeviceSlot& device) { return device.node == node; });
}

void Membership::ready(NodeId node, bool is_newcomer) {
  members_[node.index()].phase = Phase::ready;
  if (is_newcomer) newcomers_.insert(node);
}

void Membership::gone(NodeId node) {
  members_[node.index()].phase = Phase::gone;
  newcomers_.erase(node);
  leaving_.erase(node);
  told_.erase(node);
  cut_off_.erase(node);
  late_broken_.erase(node);
  first_signs_.erase(node);
}

void Membership::clear(NodeId node) {
  gone(node);
  members_[node.index()] = {};
}

void Membership::fell_silent(NodeId node) { members_[node.index()].is_silent = true; }

std::vector<NodeId> Membership::late(Time now, Duration limit) const {
  std::vector<NodeId> nodes;
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (members_[i].phase == Phase::joined && now - members_[i].since > limit)
      nodes.push_back(NodeId{i});
  return nodes;
}

void Membership::place_newcomers(const std::vector<NodeId>& nodes) {
  for (const NodeId node : nodes) newcomers_.erase(node);
}

void Membership::look_again(const std::set<NodeId>& working, const std::set<NodeId>& unfilled) {
  for (const NodeId node : std::exchange(set_aside_, {}))
    if (takes_part(node) && !working.contains(node)) newcomers_.insert(node);
  for (const NodeId node : unfilled)
    if (takes_part(node)) newcomers_.insert(node);
}

bool Membership::told_to_end(NodeId node, std::string why) {
  told_to_end_.emplace(node, std::move(why));
  return told_to_end_.size() == 1;
}

void Membership::leave(NodeId node, Leaving leaving) {
  Leaving& known = leaving_.emplace(node, leaving).first->second;
  if (!known.by_signal) known = std::move(leaving);
}

bool Membership::takes_state_away() const {
  return std::ranges::any_of(leaving_, [](const auto& one) { return one.second.by_signal; });
}

std::map<NodeId, Leaving> Membership::keep_asked() {
  std::map<NodeId, Leaving> told, asked;
  for (auto& [node, leave] : leaving_)
    (leave.by_signal ? told : asked).emplace(node, std::move(leave));
  leaving_ = std::move(told);
  return asked;
}

ToldToEnd Membership::settle_told() {
  ToldToEnd told;
  told.nodes = std::exchange(told_to_end_, {});
  const auto there = std::count_if(members_.begin(), members_.end(), actors::is_there);
  told.is_for_all = 2 * told.nodes.size() > static_cast<std::size_t>(there);
  std::erase_if(told.nodes, [this](const auto& one) { return !is_there(one.first); });
  return told;
}

void Membership::go_on_from(EpochNumber generation) {
  generation_ = std::max(generation_, generation);
}

EpochNumber Membership::begin_generation() {
  const auto left = [this](NodeId node) { return !told_.contains(node); };
  // One that could not be made is tried anew: who fails again says so.
  for (const auto& [reporter, peer] : std::exchange(unmade_, {})) missed_[peer].erase(reporter);
  for (const NodeId node : std::exchange(unmade_to_head_, {})) cut_off_.erase(node);
  // Of two that stay a way that broke is not made again: it is missed in this generation too, also
  // before they say so again.
  for (auto& [peer, reporters] : missed_) std::erase_if(reporters, left);
  std::erase_if(missed_,
                [&](const auto& entry) { return left(entry.first) || entry.second.empty(); });
  told_ = present();
  for (const NodeId node : told_) members_[node.index()].phase = Phase::ready;
  first_signs_.clear();
  return ++generation_;
}

bool Membership::fetched(NodeId node) {
  if (!told_.contains(node)) return false;
  members_[node.index()].phase = Phase::fetched;
  return all_in(Phase::fetched);
}

bool Membership::applied(NodeId node) {
  if (!told_.contains(node)) return false;
  members_[node.index()].phase = Phase::applied;
  return all_in(Phase::applied);
}

bool Membership::all_in(Phase phase) const {
  return std::all_of(told_.begin(), told_.end(),
                     [&](NodeId node) { return members_[node.index()].phase == phase; });
}

bool Membership::miss(NodeId reporter, NodeId peer, NoWay why) {
  // Not one that left in order, nor the process that took its place.
  if (!told_.contains(peer) || !told_.contains(reporter)) return false;
  const bool is_new = missed_[peer].insert(reporter).second;
  const std::pair<NodeId, NodeId> way(reporter, peer);
  if (why == NoWay::broken)
    unmade_.erase(way);
  else if (is_new)
    unmade_.insert(way);
  return true;
}

bool Membership::is_miss_explained() const {
  return !missed_.empty() &&
         std::none_of(missed_.begin(), missed_.end(), [this](const auto& entry) {
           const auto& [peer, reporters] = entry;
           return is_there(peer) &&
                  std::any_of(reporters.begin(), reporters.end(),
                              [this](NodeId reporter) { return is_there(reporter); });
         });
}

std::vector<Suspect> Membership::suspects(const StatePlacement& held,
                                          std::int32_t tolerance) const {
  std::map<NodeId, std::set<NodeId>> apart;
  for (const auto& [peer, reporters] : missed_)
    for (const NodeId reporter : reporters) {
      apart[peer].insert(reporter);
      apart[reporter].insert(peer);
    }
  const auto times_named = [this](NodeId node) {
    const auto named = missed_.find(node);
    return named == missed_.end() ? 0 : named->second.size();
  };
  std::vector<Suspect> suspects;
  for (const auto& [node, others] : apart)
    if (is_there(node)) suspects.push_back({node, others});
  const auto costs = loss_costs(held, tolerance);
  // Who holds nothing, as who has just joined, costs less than any that does.
  const auto cost_of = [&costs](NodeId node) {
    const auto cost = costs.find(node);
    return cost == costs.end() ? std::pair(false, LossCost{}) : std::pair(true, cost->second);
  };
  std::sort(suspects.begin(), suspects.end(), [&](const Suspect& a, const Suspect& b) {
    // Of all but the costs more comes first.
    return std::tuple(a.others.size(), times_named(a.node), cost_of(b.node), a.node) >
           std::tuple(b.others.size(), times_named(b.node), cost_of(a.node), b.node);
  });
  return suspects;
}

bool Membership::miss_head(NodeId node, std::string how, NoWay why) {
  if (!told_.contains(node)) return false;
  const bool is_new = cut_off_.emplace(node, std::move(how)).second;
  if (why == NoWay::broken)
    unmade_to_head_.erase(node);
  else if (is_new)
    unmade_to_head_.insert(node);
  return true;
}

bool Membership::lose_way_to_head(NodeId node, std::string how) {
  return told_.contains(node) && late_broken_.emplace(node, std::move(how)).second;
}

void Membership::suspect(NodeId node, Time since) {
  Time& first = first_signs_.emplace(node, since).first->second;
  first = std::min(first, since);
}

std::optional<Time> Membership::suspected_since(NodeId node) const {
  const auto sign = first_signs_.find(node);
  if (sign == first_signs_.end()) return std::nullopt;
  return sign->second;
}

void Membership::keep_only(const StatePlacement& want) {
  for (Shard& shard : placed_) {
    const auto kept =
        std::lower_bound(want.begin(), want.end(), shard.key,
                         [](const Shard& other, const ShardKey& key) { return other.key < key; });
    const bool is_wanted = kept != want.end() && kept->key == shard.key;
    std::erase_if(shard.holders, [&](const DeviceSlot& device) {
      return !is_wanted || !std::binary_search(kept->holders.begin(), kept->holders.end(), device);
    });
  }
}

std::optional<Shortage> Membership::shortage(bool matters, std::int64_t needed, Time now) {
  const auto count = static_cast<std::int64_t>(present().size());
  if (!matters || count >= needed) {
    short_since_.reset();
    return std::nullopt;
  }
  const bool is_new = !short_since_.has_value();
  if (is_new) short_since_ = now;
  return Shortage{count, is_new, now - *short_since_};
}

}  // namespace troupe::actors
