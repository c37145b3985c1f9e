#include "scheduler/iteration/message_routes.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "scheduler/iteration/boundary_routes.hpp"
#include "scheduler/iteration/stage_graph.hpp"

namespace troupe::scheduler {

namespace {

constexpr std::array kRoutes{Route::direct, Route::leader, Route::gather_scatter};

/// The device through which rows of a module from this replica go when they are gathered.
DeviceId hub_of(const ParallelPlan& plan, ModuleId module, ReplicaId source) {
  const auto last = static_cast<std::int32_t>(plan.model.at(module).layers.size()) - 1;
  for (const ReplicaId replica : plan.at(plan.at(source).pipeline).replicas)
    if (plan.at(replica).group == plan.at(source).group)
      return plan.at(stage_with(plan, replica, {module, last})).devices.front();
  return {};
}

bool has(const Stage& stage, DeviceId device) {
  return std::find(stage.devices.begin(), stage.devices.end(), device) != stage.devices.end();
}

/// As `keeps_rows` of boundary_routes.hpp.
bool stays(const Stage& from, const Stage& to) {
  return from.devices == to.devices && (from.grid.cp == 1 || from.grid == to.grid);
}

RankGroup ranks_of(const ParallelPlan& plan, StageId stage) {
  RankGroup group{plan.at(stage).grid, {}};
  for (const DeviceId device : plan.at(stage).devices)
    group.ranks.push_back(plan.devices[device.index()]);
  return group;
}

/// The messages of one boundary.
class Boundary {
 public:
  Boundary(const ParallelPlan& plan, ModuleId module, std::span<Message> messages)
      : plan_(plan), module_(module), messages_(messages), hubs_(plan.pipelines.size()) {}

  void add(std::size_t message) { own_.push_back(message); }

  /// Milliseconds by each route.
  std::vector<double> predict(const LinkCost& link_ms) const {
    // Numbers of stages among the sources or the destinations; -1: it is none yet.
    std::vector<std::int32_t> sources(plan_.stages.size(), -1), destinations = sources;
    std::vector<RankGroup> from, to;
    const auto number = [&](std::vector<std::int32_t>& numbers, std::vector<RankGroup>& groups,
                            StageId stage) {
      std::int32_t& own = numbers[stage.index()];
      if (own < 0) {
        own = static_cast<std::int32_t>(groups.size());
        groups.push_back(ranks_of(plan_, stage));
      }
      return own;
    };
    std::vector<std::pair<DeviceId, RowInterval>> rows;  // Of all messages, by hub and ends.
    for (const std::size_t m : own_) {
      const Message& message = messages_[m];
      const std::int32_t source = number(sources, from, message.source.stage);
      const std::int32_t destination = number(destinations, to, message.destination.stage);
      rows.push_back({hub_of(message), {source, destination, message.rows}});
    }
    const auto ends = [](const auto& entry) {
      return std::tuple(entry.first, entry.second.source, entry.second.destination);
    };
    std::sort(rows.begin(), rows.end(),
              [&](const auto& a, const auto& b) { return ends(a) < ends(b); });
    std::map<DeviceId, std::vector<RowInterval>> by_hub;  // One interval for each pair of stages.
    for (std::size_t i = 0; i < rows.size(); ++i) {
      auto& intervals = by_hub[rows[i].first];
      if (i > 0 && ends(rows[i]) == ends(rows[i - 1]))
        intervals.back().rows += rows[i].second.rows;
      else
        intervals.push_back(rows[i].second);
    }
    const auto width = static_cast<double>(messages_[own_.front()].width);
    const LinkCost rows_ms = [&](LinkClass link, double count) {
      return link_ms(link, count * width);
    };
    std::vector<double> predicted;
    const auto is_one = [](const RankGroup& group) { return group.ranks.size() == 1; };
    const bool has_grids = !std::all_of(from.begin(), from.end(), is_one) ||
                           !std::all_of(to.begin(), to.end(), is_one);
    for (const Route route : kRoutes) {
      if (route == Route::leader && !has_grids) {  // The leader is the only rank.
        predicted.push_back(predicted.front());
        continue;
      }
      std::vector<RankMessage> all;
      for (const auto& [hub, intervals] : by_hub) {
        const auto part = route_messages(route, from, to, intervals, plan_.devices[hub.index()]);
        all.insert(all.end(), part.begin(), part.end());
      }
      predicted.push_back(route_ms(all, rows_ms));
    }
    return predicted;
  }

  void take(Route route) {
    for (const std::size_t m : own_) {
      Message& message = messages_[m];
      const Stage& from = plan_.at(message.source.stage);
      const Stage& to = plan_.at(message.destination.stage);
      message.route = stays(from, to) ? Route::direct : route;
      message.relay = {};
      if (message.route != Route::gather_scatter) continue;
      const DeviceId hub = hub_of(message);
      if (!has(from, hub) && !has(to, hub)) message.relay = hub;
    }
  }

 private:
  DeviceId hub_of(const Message& message) const {
    const ReplicaId replica = plan_.at(message.source.stage).replica;
    DeviceId& known = hubs_[plan_.at(replica).pipeline.index()];
    if (!known.valid()) known = scheduler::hub_of(plan_, module_, replica);
    return known;
  }

  const ParallelPlan& plan_;
  const ModuleId module_;
  std::span<Message> messages_;
  std::vector<std::size_t> own_;
  mutable std::vector<DeviceId> hubs_;  // Per pipeline, found once each.
};

/// From one rank that has all rows to the others of its grid: scattered, then exchanged along tp.
void add_spread(const Parallelism& grid, RouteLegs& legs) {
  if (grid.ranks() > 1) legs.legs[legs.count++] = {LinkClass::node, 1 - 1.0 / grid.ranks()};
}
void add_exchange(const Parallelism& grid, RouteLegs& legs) {
  if (grid.tp > 1)
    legs.legs[legs.count++] = {LinkClass::node,
                               (grid.tp - 1.0) / static_cast<double>(grid.ranks())};
}
/// What other ranks along cp have, to one of the grid.
void add_gather(const Parallelism& grid, RouteLegs& legs) {
  if (grid.cp > 1) legs.legs[legs.count++] = {LinkClass::node, 1 - 1.0 / grid.cp};
}

}  // namespace

std::vector<BoundaryRoute> choose_routes(const ParallelPlan& plan, std::span<Message> messages,
                                         const RouteRules& rules) {
  std::map<std::pair<ModuleId, ModuleGroupId>, Boundary> boundaries;
  for (std::size_t m = 0; m < messages.size(); ++m) {
    const Message& message = messages[m];
    const ModuleGroupId from = plan.at(plan.at(message.source.stage).replica).group;
    const ModuleGroupId to = plan.at(plan.at(message.destination.stage).replica).group;
    if (from == to) continue;
    boundaries.try_emplace({message.module, to}, plan, message.module, messages)
        .first->second.add(m);
  }
  std::vector<BoundaryRoute> chosen;
  for (auto& [key, boundary] : boundaries) {
    BoundaryRoute made{key.first, key.second, {}, rules.pin.has_value(), {0, 0, 0}};
    if (rules.link_ms) made.predicted_ms = boundary.predict(rules.link_ms);
    const auto least = std::min_element(made.predicted_ms.begin(), made.predicted_ms.end());
    made.route =
        rules.pin.value_or(kRoutes[static_cast<std::size_t>(least - made.predicted_ms.begin())]);
    boundary.take(made.route);
    chosen.push_back(std::move(made));
  }
  return chosen;
}

RouteLegs legs_of(const ParallelPlan& plan, const Message& message, bool gradient) {
  const Stage& source = plan.at(message.source.stage);
  const Stage& destination = plan.at(message.destination.stage);
  const Stage& from = gradient ? destination : source;
  const Stage& to = gradient ? source : destination;
  const auto link = [&](DeviceId a, DeviceId b) {
    return link_class(plan.devices[a.index()], plan.devices[b.index()]);
  };
  RouteLegs legs;
  switch (message.route) {
    case Route::direct:
      legs.legs[legs.count++] = {link_class(plan, from, to), rank_share(from.grid, to.grid)};
      break;
    case Route::leader:
      add_gather(from.grid, legs);
      legs.crossing = legs.count;
      legs.legs[legs.count++] = {link(from.devices.front(), to.devices.front()), 1};
      add_spread(to.grid, legs);
      add_exchange(to.grid, legs);
      break;
    case Route::gather_scatter: {
      const DeviceId hub =
          message.relay.valid() ? message.relay : hub_of(plan, message.module, source.replica);
      if (has(from, hub))
        add_gather(from.grid, legs);
      else
        legs.legs[legs.count++] = {link(from.devices.front(), hub), 1};
      legs.crossing = has(from, hub) ? legs.count : 0;
      legs.relayed = legs.count;
      if (has(to, hub))
        add_spread(to.grid, legs);
      else
        legs.legs[legs.count++] = {link(hub, to.devices.front()), 1};
      add_exchange(to.grid, legs);
      if (legs.crossing >= legs.count) legs.crossing = 0;
      break;
    }
  }
  if (!message.relay.valid()) legs.relayed = legs.count;
  return legs;
}

}  // namespace troupe::scheduler
