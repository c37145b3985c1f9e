#include "runtime/vocabulary/gradient_sum.hpp"

#include <algorithm>
#include <map>

#include "runtime/vocabulary/index.hpp"

namespace troupe {

namespace {

/// The branches of a sum without their adders.
std::vector<SumBranch> branches_of(const ParallelPlan& plan, const ParameterGroup& group) {
  std::vector<SumBranch> branches;
  std::map<NodeId, std::size_t> by_node;
  for (std::int32_t place = 0; place < std::ssize(group.holders); ++place) {
    std::size_t branch = branches.size();
    if (group.order == SumOrder::tree_by_node)
      branch = by_node.try_emplace(plan.devices[group.holders[at(place)].index()].node, branch)
                   .first->second;
    if (branch == branches.size()) branches.emplace_back();
    branches[branch].holders.push_back(place);
    if (place < group.users()) ++branches[branch].users;
  }
  return branches;
}

/// Deals the chunks that others own to the holders of a branch in turn; of another group another
/// holder begins.
void choose_adders(const GroupSum& sum, GroupId id, std::size_t index, SumBranch& branch) {
  if (branch.holders.size() == 1) return;
  const std::size_t pool = branch.users > 0 ? at(branch.users) : branch.holders.size();
  std::size_t turn = id.index();
  for (const SumChunk& chunk : sum.chunks)
    branch.adders.push_back(
        sum.branch_of[at(chunk.owner)] == index ? chunk.owner : branch.holders[turn++ % pool]);
}

/// What each holder adds up, hands on, and needs others for.
void fill_roles(GroupSum& sum) {
  std::vector<std::size_t> added(sum.roles.size()), handed(sum.roles.size());  // Chunks, by holder.
  for (std::size_t c = 0; c < sum.chunks.size(); ++c) {
    const std::int32_t owner = sum.chunks[c].owner;
    sum.roles[at(owner)].adds = sum.chunks[c].size();
    sum.roles[at(owner)].own_chunk = static_cast<std::int32_t>(c);
    ++added[at(owner)];
    ++handed[at(owner)];
  }
  for (std::size_t b = 0; b < sum.branches.size(); ++b)
    for (std::size_t c = 0; c < sum.branches[b].adders.size(); ++c) {
      const std::int32_t adder = sum.branches[b].adders[c];
      if (adder == sum.chunks[c].owner) continue;
      SumRole& role = sum.roles[at(adder)];
      role.relays += sum.chunks[c].size();
      ++handed[at(adder)];
      if (sum.branches[b].users < 2) continue;  // What one holder has it sends to the owner itself.
      role.partials += sum.chunks[c].size();
      ++added[at(adder)];
    }
  for (SumRole& role : sum.roles) {
    role.sends = role.place < sum.users && added[at(role.place)] < sum.chunks.size();
    role.takes = handed[at(role.place)] < sum.chunks.size();
  }
}

/// Each holder enters the call and takes the sum out of it; owners of chunks measure them.
void fill_roles_of_call(GroupSum& sum) {
  for (std::size_t c = 0; c < sum.chunks.size(); ++c)
    sum.roles[at(sum.chunks[c].owner)].own_chunk = static_cast<std::int32_t>(c);
  for (SumRole& role : sum.roles) role.sends = role.takes = true;
}

/// One with each other holder.
std::vector<SumTransfer> transfers_of_call(const GroupSum& sum, std::int32_t place,
                                           ActionKind kind) {
  std::vector<SumTransfer> transfers;
  for (const SumRole& role : sum.roles)
    if (role.place != place) transfers.push_back({0, role.place, kind});
  return transfers;
}

/// NCCL takes each GPU for one rank of a call, which has all that is added up.
bool can_call(const ParallelPlan& plan, const ParameterGroup& group) {
  return group.holders.size() > 1 &&
         std::all_of(group.uses.begin(), group.uses.end(),
                     [&](const ParameterUse& use) { return plan.at(use.stage).grid.tp == 1; });
}

}  // namespace

bool SumRole::acts(ActionKind kind) const {
  switch (kind) {
    case ActionKind::reduce_send: return sends;
    case ActionKind::reduce_partial: return partials > 0;
    case ActionKind::reduce: return adds > 0;
    case ActionKind::reduce_relay: return relays > 0;
    case ActionKind::reduce_receive: return takes;
    default: return false;
  }
}

std::int32_t GroupSum::adder(std::size_t branch, std::size_t chunk) const {
  const SumBranch& own = branches[branch];
  return own.adders.empty() ? own.holders.front() : own.adders[chunk];
}

std::vector<SumTransfer> GroupSum::sent(std::int32_t place, ActionKind kind) const {
  if (is_call && kind == ActionKind::reduce_send)
    return transfers_of_call(*this, place, ActionKind::reduce_receive);
  if (is_call) return {};
  std::vector<SumTransfer> transfers;
  const std::size_t home = branch_of[at(place)];
  const SumBranch& branch = branches[home];
  const auto to_branch = [&](std::size_t chunk) {
    for (const std::int32_t holder : branch.holders)
      if (holder != place) transfers.push_back({chunk, holder, ActionKind::reduce_receive});
  };
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const std::int32_t owner = chunks[c].owner, first = adder(home, c);
    const bool owned_here = branch_of[at(owner)] == home;
    switch (kind) {
      case ActionKind::reduce_send:
        if (place >= users || owner == place) break;
        if (first != place)
          transfers.push_back(
              {c, first, owned_here ? ActionKind::reduce : ActionKind::reduce_partial});
        else if (branch.users == 1)
          transfers.push_back({c, owner, ActionKind::reduce});
        break;
      case ActionKind::reduce_partial:
        if (first == place && !owned_here && branch.users > 1)
          transfers.push_back({c, owner, ActionKind::reduce});
        break;
      case ActionKind::reduce:
        if (owner != place) break;
        for (std::size_t b = 0; b < branches.size(); ++b)
          if (b == home)
            to_branch(c);
          else
            transfers.push_back({c, adder(b, c),
                                 branches[b].holders.size() > 1 ? ActionKind::reduce_relay
                                                                : ActionKind::reduce_receive});
        break;
      case ActionKind::reduce_relay:
        if (first == place && !owned_here) to_branch(c);
        break;
      default: break;
    }
  }
  return transfers;
}

std::vector<SumTransfer> GroupSum::taken(std::int32_t place, ActionKind kind) const {
  if (is_call && kind == ActionKind::reduce_receive)
    return transfers_of_call(*this, place, ActionKind::reduce_send);
  if (is_call) return {};
  std::vector<SumTransfer> transfers;
  const std::size_t home = branch_of[at(place)];
  const SumBranch& branch = branches[home];
  const auto from_branch = [&](std::size_t chunk) {
    for (std::int32_t user = 0; user < branch.users; ++user)
      if (branch.holders[at(user)] != place)
        transfers.push_back({chunk, branch.holders[at(user)], ActionKind::reduce_send});
  };
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const std::int32_t owner = chunks[c].owner, first = adder(home, c);
    const bool owned_here = branch_of[at(owner)] == home;
    switch (kind) {
      case ActionKind::reduce_partial:
        if (first == place && !owned_here && branch.users > 1) from_branch(c);
        break;
      case ActionKind::reduce:
        if (owner != place) break;
        for (std::size_t b = 0; b < branches.size(); ++b)
          if (b == home)
            from_branch(c);
          else if (branches[b].users > 0)
            transfers.push_back(
                {c, adder(b, c),
                 branches[b].users > 1 ? ActionKind::reduce_partial : ActionKind::reduce_send});
        break;
      case ActionKind::reduce_relay:
        if (first == place && !owned_here && branch.holders.size() > 1)
          transfers.push_back({c, owner, ActionKind::reduce});
        break;
      case ActionKind::reduce_receive:
        if (first != place)
          transfers.push_back(
              {c, first, owned_here ? ActionKind::reduce : ActionKind::reduce_relay});
        else if (!owned_here && branch.holders.size() == 1)
          transfers.push_back({c, owner, ActionKind::reduce});
        break;
      default: break;
    }
  }
  return transfers;
}

GroupSum plan_sum(const ParallelPlan& plan, GroupId id) {
  const ParameterGroup& group = plan.groups[id.index()];
  GroupSum sum{sum_chunks(group, id),  {}, branches_of(plan, group), {}, group.users(),
               is_by_nccl(group.order)};
  std::vector<std::int32_t> places(plan.devices.size(), -1);
  for (const DeviceId& device : group.holders) {
    const auto place = static_cast<std::int32_t>(sum.roles.size());
    places[device.index()] = place;
    SumRole& role = sum.roles.emplace_back();
    role.place = place;
    role.ranks = {&device, 1};
  }
  for (std::size_t u = 0; u < group.uses.size(); ++u) {
    const Stage& stage = plan.at(group.uses[u].stage);
    for (std::int32_t cp = 0; cp < stage.grid.cp; ++cp) {
      const auto ranks = stage.row(cp);
      SumRole& role = sum.roles[at(places[ranks.front().index()])];
      role.ranks = ranks;
      role.uses.push_back(u);
    }
  }
  sum.branch_of.resize(sum.roles.size());
  for (std::size_t b = 0; b < sum.branches.size(); ++b)
    for (const std::int32_t place : sum.branches[b].holders) sum.branch_of[at(place)] = b;
  if (sum.is_call) {
    fill_roles_of_call(sum);
    return sum;
  }
  for (std::size_t b = 0; b < sum.branches.size(); ++b) choose_adders(sum, id, b, sum.branches[b]);
  fill_roles(sum);
  return sum;
}

SumRole role_of(const GroupSum& sum, DeviceId device) {
  for (const SumRole& role : sum.roles)
    if (std::find(role.ranks.begin(), role.ranks.end(), device) != role.ranks.end()) return role;
  return {};
}

SumOrder sum_order(const ParallelPlan& plan, const ParameterGroup& group, GroupId id) {
  if (group.users() == 0) return SumOrder::chain;
  if (is_by_nccl(plan.model.sums) && can_call(plan, group)) return plan.model.sums;
  struct Node {
    std::int64_t users = 0;
    std::int64_t owned = 0;  ///< Elements that holders here own.
  };
  std::map<NodeId, Node> nodes;
  const auto node_of = [&](std::int32_t place) -> Node& {
    return nodes[plan.devices[group.holders[at(place)].index()].node];
  };
  for (std::int32_t place = 0; place < group.users(); ++place) ++node_of(place).users;
  for (const SumChunk& chunk : sum_chunks(group, id)) node_of(chunk.owner).owned += chunk.size();
  std::int64_t chain = 0, tree = 0;  // Through the busiest node: the larger of both ways.
  for (const auto& [name, node] : nodes) {
    const std::int64_t others = group.users() - node.users, away = group.elements - node.owned;
    const std::int64_t other_nodes = std::ssize(nodes) - 1;
    // Parts of what others own, and sums of what this node owns; what comes is as much.
    chain = std::max({chain, node.users * away + node.owned * others});
    tree = std::max({tree, away + node.owned * other_nodes});
  }
  return tree < chain ? SumOrder::tree_by_node : SumOrder::chain;
}

}  // namespace troupe
