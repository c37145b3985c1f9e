#include "scheduler/state/state_moves.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "scheduler/cost/state_bytes.hpp"
#include "scheduler/state/copy_plan.hpp"

namespace troupe::scheduler {

namespace {

/// The shards of one parameter and kind. REQUIRES: ascending by key.
std::span<const Shard> shards_of(const StatePlacement& placement, const ShardKey& key) {
  const auto order = [](const auto& a, const auto& b) {
    return std::tie(a.key.parameter, a.key.kind) < std::tie(b.key.parameter, b.key.kind);
  };
  const auto [begin, end] =
      std::equal_range(placement.begin(), placement.end(), Shard{key, {}}, order);
  return {begin, end};
}

bool holds(const std::vector<DeviceSlot>& holders, const DeviceSlot& device) {
  return std::binary_search(holders.begin(), holders.end(), device);
}

/// Cuts a box wherever one of the sources begins or ends, so that each piece lies wholly in or
/// wholly outside of each of them.
std::vector<Box> refine(const Box& box, std::span<const Shard> sources) {
  std::vector<Box> pieces{{}};
  for (std::size_t d = 0; d < box.size(); ++d) {
    std::set<std::int64_t> cuts{box[d].begin, box[d].end};
    for (const Shard& source : sources)
      for (const std::int64_t cut : {source.key.box[d].begin, source.key.box[d].end})
        if (cut > box[d].begin && cut < box[d].end) cuts.insert(cut);
    std::vector<Box> longer;
    for (const Box& piece : pieces)
      for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
        longer.push_back(piece);
        longer.back().push_back({*cut, *std::next(cut)});
      }
    pieces = std::move(longer);
  }
  return pieces;
}

/// Those of a node.
std::span<const DeviceSlot> on_node(const std::vector<DeviceSlot>& holders, NodeId node) {
  const auto first = std::lower_bound(holders.begin(), holders.end(), DeviceSlot{node, 0});
  auto last = first;
  while (last != holders.end() && last->node == node) ++last;
  return {first, last};
}

/// What several devices need from several others: pieces of one layer that the same devices have
/// and the same devices want travel together.
struct Bundle {
  LayerId layer;
  std::vector<DeviceSlot> holders;
  std::vector<DeviceSlot> needs;

  friend auto operator<=>(const Bundle&, const Bundle&) = default;
};

/// Those of a shard's holders that lack it.
std::vector<DeviceSlot> missing_of(std::span<const Shard> sources, const Shard& wanted) {
  std::vector<DeviceSlot> missing = wanted.holders;
  for (const Shard& shard : sources) {
    if (shard.key.box != wanted.key.box) continue;
    const std::vector<DeviceSlot> before = std::move(missing);
    missing.clear();
    std::set_difference(before.begin(), before.end(), shard.holders.begin(), shard.holders.end(),
                        std::back_inserter(missing));
  }
  return missing;
}

/// Who has all of a piece, ascending.
std::vector<DeviceSlot> holders_of(std::span<const Shard> sources, const Box& piece) {
  std::vector<DeviceSlot> holders;
  for (const Shard& shard : sources) {
    if (!contains(shard.key.box, piece)) continue;
    const auto middle = static_cast<std::ptrdiff_t>(holders.size());
    holders.insert(holders.end(), shard.holders.begin(), shard.holders.end());
    std::inplace_merge(holders.begin(), holders.begin() + middle, holders.end());
  }
  holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
  return holders;
}

/// Calls `miss(piece, holders, missing)` for each piece of a shard that devices lack.
template <class Miss>
void visit_missing(const StatePlacement& have, const Shard& wanted, Miss miss) {
  const auto sources = shards_of(have, wanted.key);
  const std::vector<DeviceSlot> missing = missing_of(sources, wanted);
  if (missing.empty()) return;
  for (const Box& box : refine(wanted.key.box, sources))
    miss(ShardKey{wanted.key.parameter, wanted.key.kind, box}, holders_of(sources, box), missing);
}

Error lost(const std::set<std::string>& parameters) {
  std::string names;
  for (const std::string& name : parameters) names += (names.empty() ? "" : ", ") + name;
  return {Errc::infeasible, "no device has the state of " + names, {}, {}};
}

class Planner {
  using Routes = std::vector<std::pair<DeviceSlot, DeviceSlot>>;  // From, to.
  using Pieces = std::vector<ShardKey>;

 public:
  Planner(const std::vector<ParameterInfo>& parameters, Dtype dtype, const StatePlacement& have)
      : parameters_(parameters), dtype_(dtype), have_(have) {}

  void add(const Shard& wanted) {
    if (have_.empty()) {
      for (const DeviceSlot& device : wanted.holders)
        moves_[wanted.key].emplace_back(DeviceSlot{}, device);
      return;
    }
    visit_missing(
        have_, wanted,
        [this](const ShardKey& piece, const std::vector<DeviceSlot>& holders,
               const std::vector<DeviceSlot>& missing) { add_piece(piece, holders, missing); });
  }

  Result<StateMoves> finish() {
    if (!lost_.empty()) return lost(lost_);
    for (const auto& [node, bundles] : near_)
      if (auto planned = plan(bundles, 0); !planned.ok()) return std::move(planned).error();
    auto planned = plan(far_, kCopySearchSteps);
    if (!planned.ok()) return std::move(planned).error();
    result_.sent_bytes = planned.value().sent;
    result_.max_sent_bytes = planned.value().busiest;
    result_.lower_bound_bytes = planned.value().bound;
    for (auto& [piece, routes] : moves_) {
      std::sort(routes.begin(), routes.end());
      for (const auto& [from, to] : routes) result_.moves.push_back({piece, from, to});
    }
    return std::move(result_);
  }

 private:
  const ParameterInfo& info(const ShardKey& piece) const {
    return parameters_[piece.parameter.index()];
  }

  void add_piece(const ShardKey& piece, const std::vector<DeviceSlot>& holders,
                 const std::vector<DeviceSlot>& missing) {
    if (holders.empty()) {
      lost_.insert(info(piece).name);
      return;
    }
    Bundle far{info(piece).uses.front(), holders, {}};
    std::map<NodeId, std::vector<DeviceSlot>> near;
    for (const DeviceSlot& device : missing) {
      if (holds(holders, device))
        moves_[piece].emplace_back(device, device);
      else if (on_node(holders, device.node).empty())
        far.needs.push_back(device);
      else
        near[device.node].push_back(device);
    }
    for (auto& [node, needs] : near) {
      const auto own = on_node(holders, node);
      near_[node].push_back({{far.layer, {own.begin(), own.end()}, std::move(needs)}, {piece}});
    }
    if (!far.needs.empty()) far_[std::move(far)].push_back(piece);
  }

  struct Sent {
    std::int64_t sent = 0, busiest = 0, bound = 0;  ///< In all; the most that one sends; the least.
  };

  /// Routes of what these devices need from each other, by the copy plan.
  template <class Bundles>
  Result<Sent> plan(const Bundles& bundles, std::int64_t search_steps) {
    std::map<DeviceSlot, std::int64_t> ranks;
    for (const auto& [bundle, pieces] : bundles)
      for (const auto& list : {bundle.holders, bundle.needs})
        for (const DeviceSlot& device : list) ranks[device] = 0;
    std::vector<DeviceSlot> devices;
    for (auto& [device, rank] : ranks) {
      rank = static_cast<std::int64_t>(devices.size());
      devices.push_back(device);
    }
    const auto ranks_of = [&](const std::vector<DeviceSlot>& list) {
      std::vector<std::int64_t> own;
      for (const DeviceSlot& device : list) own.push_back(ranks.at(device));
      return own;
    };
    std::vector<CopyItem> items;
    std::vector<std::vector<Routes*>> contents;
    for (const auto& [bundle, pieces] : bundles) {
      CopyItem item{info(pieces.front()).name, 0, ranks_of(bundle.holders), ranks_of(bundle.needs)};
      for (const ShardKey& piece : pieces)
        item.bytes += elements_of(piece.box) * bytes_per_element(piece.kind, dtype_);
      items.push_back(std::move(item));
      auto& routes = contents.emplace_back();
      for (const ShardKey& piece : pieces) routes.push_back(&moves_[piece]);
    }
    auto plan = plan_copies(items, search_steps);
    if (!plan.ok()) return std::move(plan).error();
    Sent sent{0, plan.value().max_sent_bytes, plan.value().lower_bound_bytes};
    for (const Copy& copy : plan.value().copies) {
      const auto item = static_cast<std::size_t>(copy.item);
      sent.sent += items[item].bytes;
      for (Routes* routes : contents[item])
        routes->emplace_back(devices[static_cast<std::size_t>(copy.from)],
                             devices[static_cast<std::size_t>(copy.to)]);
    }
    return sent;
  }

  const std::vector<ParameterInfo>& parameters_;
  Dtype dtype_;
  const StatePlacement& have_;
  StateMoves result_;
  std::map<ShardKey, Routes> moves_;
  std::map<Bundle, Pieces> far_;
  /// By node. There are few of them, so each piece goes on its own, and nothing is searched: what
  /// greedy and local search find is near the bound, in a fraction of a millisecond.
  std::map<NodeId, std::vector<std::pair<Bundle, Pieces>>> near_;
  std::set<std::string> lost_;
};

}  // namespace

StatePlacement place_state(const ParallelPlan& plan, const std::vector<ParameterInfo>& parameters,
                           Dtype dtype) {
  /// A device whose stage uses a layer, as a rank of the stage's grid.
  struct User {
    DeviceSlot device;
    std::int32_t tp, rank;
  };
  std::map<LayerId, std::vector<User>> users;
  for (const Stage& stage : plan.stages)
    for (std::size_t r = 0; r < stage.devices.size(); ++r) {
      const User user{plan.devices[stage.devices[r].index()], stage.grid.tp,
                      static_cast<std::int32_t>(r) % stage.grid.tp};
      for (const LayerRun& run : stage.runs)
        for (std::int32_t layer = run.layers.begin; layer < run.layers.end; ++layer)
          users[{run.module, layer}].push_back(user);
    }
  std::map<std::pair<LayerId, std::string>, std::vector<DeviceSlot>> standbys;
  for (const Standby& standby : plan.standbys)
    standbys[{standby.layer, standby.tied}].push_back(plan.devices[standby.device.index()]);
  StatePlacement placement;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    std::map<Box, std::vector<DeviceSlot>> holders;
    for (const LayerId use : parameters[p].uses)
      for (const User& user : users[use])
        holders[rank_box(parameters[p], user.tp, user.rank)].push_back(user.device);
    const bool is_tied = parameters[p].uses.size() > 1;
    const auto& more = standbys[{parameters[p].uses.front(), is_tied ? parameters[p].name : ""}];
    if (!more.empty() || holders.empty())
      std::copy(more.begin(), more.end(),
                std::back_inserter(holders[whole_box(parameters[p].shape)]));
    for (auto& [box, own] : holders) {
      std::sort(own.begin(), own.end());
      own.erase(std::unique(own.begin(), own.end()), own.end());
    }
    for (const StateKind kind : {StateKind::value, StateKind::master, StateKind::moments}) {
      const bool is_kept = kind == StateKind::value || parameters[p].trains;
      if (!is_kept || bytes_per_element(kind, dtype) == 0) continue;
      for (const auto& [box, own] : holders)
        placement.push_back({{ParameterId{p}, kind, box}, own});
    }
  }
  return placement;
}

std::map<DeviceSlot, Bytes> arriving_bytes(const StateMoves& moves, Dtype dtype) {
  std::map<DeviceSlot, Bytes> bytes;
  for (const StateMove& move : moves.moves)
    bytes[move.to] +=
        Bytes{elements_of(move.piece.box) * bytes_per_element(move.piece.kind, dtype)};
  return bytes;
}

Result<StateMoves> plan_state_moves(const std::vector<ParameterInfo>& parameters, Dtype dtype,
                                    const StatePlacement& have, const StatePlacement& want) {
  Planner planner(parameters, dtype, have);
  for (const Shard& shard : want) planner.add(shard);
  return planner.finish();
}

Result<MoveTotals> total_moves(const std::vector<ParameterInfo>& parameters, Dtype dtype,
                               const StatePlacement& have, const StatePlacement& want) {
  MoveTotals totals;
  const auto bytes_of = [&](const ShardKey& piece) {
    return Bytes{elements_of(piece.box) * bytes_per_element(piece.kind, dtype)};
  };
  if (have.empty()) {
    for (const Shard& shard : want)
      for (const DeviceSlot& device : shard.holders) totals.arriving[device] += bytes_of(shard.key);
    return totals;
  }
  std::set<std::string> orphans;
  /// From whom, to whom: the pieces of a layer mostly go the same way.
  std::map<std::pair<std::vector<DeviceSlot>, std::vector<DeviceSlot>>, Bytes> ways;
  for (const Shard& shard : want) {
    visit_missing(have, shard,
                  [&](const ShardKey& piece, const std::vector<DeviceSlot>& holders,
                      const std::vector<DeviceSlot>& missing) {
                    if (holders.empty()) {
                      orphans.insert(parameters[piece.parameter.index()].name);
                      return;
                    }
                    ways[{holders, missing}] += bytes_of(piece);
                  });
  }
  if (!orphans.empty()) return lost(orphans);
  std::map<DeviceSlot, Bytes> received;
  std::set<DeviceSlot> senders;
  Bytes sent;
  for (const auto& [way, bytes] : ways) {
    const auto& [holders, missing] = way;
    bool is_sent = false;
    for (const DeviceSlot& device : missing) {
      totals.arriving[device] += bytes;
      if (!on_node(holders, device.node).empty()) continue;
      is_sent = true;
      sent += bytes;
      received[device] += bytes;
    }
    if (is_sent) senders.insert(holders.begin(), holders.end());
  }
  for (const auto& [device, bytes] : received)
    totals.least_busiest = std::max(totals.least_busiest, bytes);
  if (!senders.empty())
    totals.least_busiest =
        std::max(totals.least_busiest, Bytes{sent.count() / std::int64_t(senders.size())});
  return totals;
}

}  // namespace troupe::scheduler
