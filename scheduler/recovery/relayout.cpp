#include "scheduler/recovery/relayout.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "scheduler/recovery/group_layouts.hpp"
#include "scheduler/recovery/recovery_layouts.hpp"
#include "scheduler/recovery/template_layout.hpp"

namespace troupe::scheduler {

namespace {

class Relayouter {
 public:
  explicit Relayouter(const RelayoutRequest& request) : request_(request) {}

  Result<std::vector<Relayout>> find_all() {
    auto kept = keep_whole_replicas();
    const bool separate = has_groups_of_their_own(plan());
    std::vector<Relayout> found;
    const auto add = [&found](Relayout made) {
      if (std::none_of(found.begin(), found.end(),
                       [&](const Relayout& other) { return other.plan == made.plan; }))
        found.push_back(std::move(made));
    };
    const bool all_stays = kept && kept->idle.empty() && is_tolerant(kept->plan) &&
                           (!separate || keeps_work(kept->plan));
    if (all_stays && !request_.looks_further) {
      add(*std::move(kept));
      return found;
    }
    if (separate)
      for (const HandLayout& layout : group_layouts(request_))
        if (auto made = place(layout); made.ok()) add(std::move(made).value());
    if (!separate)
      if (auto made = reconfigured()) add(*std::move(made));
    if (kept && (separate || request_.templates.templates.empty())) add(*kept);
    // What whole pipelines train does not compare with replicas of groups.
    if (!found.empty() && !request_.looks_further &&
        (separate || request_.templates.templates.empty()))
      return found;
    auto made = combined();
    if (made.ok()) add(std::move(made).value());
    if (kept) add(*std::move(kept));
    if (request_.looks_further)
      for (Relayout& even : even_pipelines()) add(std::move(even));
    if (found.empty()) return std::move(made).error();
    return found;
  }

  /// The layout with standby holders.
  Result<Relayout> place(const HandLayout& layout) const {
    auto placed = place_by_hand(plan().model, layout, request_.cluster, IdleDevices::left_out);
    if (!placed.ok()) return std::move(placed).error();
    auto safe = with_standbys(std::move(placed).value());
    if (!safe.ok()) return std::move(safe).error();
    Relayout made{std::move(safe).value(), request_.nodes};
    for (const NodeId node : made.plan.nodes()) made.idle.erase(node);
    return made;
  }

 private:
  const ParallelPlan& plan() const { return request_.plan; }

  std::set<NodeId> nodes_of(const std::vector<StageId>& stages) const {
    std::set<NodeId> nodes;
    for (const StageId stage : stages)
      for (const DeviceId device : plan().at(stage).devices)
        nodes.insert(plan().devices[device.index()].node);
    return nodes;
  }

  bool is_whole(const Replica& replica) const {
    const auto nodes = nodes_of(replica.stages);
    return std::includes(request_.nodes.begin(), request_.nodes.end(), nodes.begin(), nodes.end());
  }

  bool is_tolerant(const ParallelPlan& made) const {
    std::vector<std::int64_t> counts(made.module_groups.size());
    for (const Replica& replica : made.replicas) ++counts[replica.group.index()];
    return *std::min_element(counts.begin(), counts.end()) > request_.tolerance.lost_nodes;
  }

  /// Whether each device that is there works for all groups that it worked for, and each has
  /// stages. Where one lost its part of a replica, its node may have others yet, and would not
  /// idle.
  bool keeps_work(const ParallelPlan& made) const {
    auto before = groups_by_device(plan());
    std::erase_if(before,
                  [&](const auto& device) { return !request_.nodes.contains(device.first.node); });
    const auto after = groups_by_device(made);
    const auto all = std::ssize(request_.nodes) * request_.cluster.devices_per_node;
    return after == before && std::ssize(after) == all;
  }

  /// Standby holders on any device of the nodes that are there.
  Result<ParallelPlan> with_standbys(ParallelPlan made) const {
    const auto others = std::ssize(request_.nodes) + std::ssize(request_.spares) - 1;
    Tolerance tolerance = request_.tolerance;
    tolerance.lost_nodes = std::min<std::int64_t>(tolerance.lost_nodes, others);
    if (tolerance.lost_nodes <= 0 && request_.spares.empty()) return made;
    offer_all_devices(made);
    if (request_.fills_spares)
      stand_by_on(made, request_.spares, tolerance);
    else
      keep_spares(made);
    if (tolerance.lost_nodes > 0)
      keep_standbys(made, static_cast<std::size_t>(tolerance.lost_nodes) + 1);
    auto safe = add_standbys(std::move(made), tolerance);
    if (safe.ok()) leave_out_idle(safe.value());
    return safe;
  }

  /// What spare nodes stood by for in the plan before.
  void keep_spares(ParallelPlan& made) const {
    for (const Standby& before : plan().standbys) {
      const DeviceSlot& slot = plan().devices[before.device.index()];
      if (request_.spares.contains(slot.node))
        made.standbys.push_back({*find_device(made, slot), before.layer, before.tied});
    }
    std::sort(made.standbys.begin(), made.standbys.end());
  }

  /// Puts every device of the nodes that are there into the plan, in order.
  void offer_all_devices(ParallelPlan& made) const {
    const auto used = std::exchange(made.devices, {});
    std::set<NodeId> nodes = request_.nodes;
    nodes.insert(request_.spares.begin(), request_.spares.end());
    for (const NodeId node : nodes)
      for (std::int32_t d = 0; d < request_.cluster.devices_per_node; ++d)
        made.devices.push_back({node, d});
    for (Stage& stage : made.stages)
      for (DeviceId& device : stage.devices) device = *find_device(made, used[device.index()]);
  }

  static std::optional<DeviceId> find_device(const ParallelPlan& made, const DeviceSlot& slot) {
    const auto found = std::find(made.devices.begin(), made.devices.end(), slot);
    if (found == made.devices.end()) return std::nullopt;
    return DeviceId{found - made.devices.begin()};
  }

  /// Takes over those of the plan before whose state is kept by fewer than `wanted` nodes.
  void keep_standbys(ParallelPlan& made, std::size_t wanted) const {
    const auto units = state_units(made.model);
    for (const Standby& before : plan().standbys) {
      const auto device = find_device(made, plan().devices[before.device.index()]);
      if (!device) continue;
      const auto unit = std::find_if(units.begin(), units.end(), [&](const StateUnit& own) {
        return own.layer == before.layer && own.tied == before.tied;
      });
      const std::vector<DeviceId> holders =
          unit_holders(made)[static_cast<std::size_t>(unit - units.begin())];
      std::set<NodeId> nodes;
      for (const DeviceId holder : holders) nodes.insert(made.devices[holder.index()].node);
      if (nodes.size() < wanted && !nodes.contains(made.devices[device->index()].node))
        made.standbys.push_back({*device, before.layer, before.tied});
    }
    std::sort(made.standbys.begin(), made.standbys.end());
  }

  /// None where a group would have no replica left.
  std::optional<Relayout> keep_whole_replicas() const {
    HandLayout layout;
    const bool separate = has_groups_of_their_own(plan());
    for (std::size_t p = 0; p < plan().pipelines.size(); ++p) {
      const auto& replicas = plan().pipelines[p].replicas;
      const bool whole = std::all_of(replicas.begin(), replicas.end(),
                                     [&](ReplicaId id) { return is_whole(plan().at(id)); });
      if (!separate && whole)
        layout.pipelines.push_back(as_written(plan(), plan().stages_of(PipelineId{p})));
      for (const ReplicaId id : replicas) {
        const Replica& replica = plan().at(id);
        if (!separate || !is_whole(replica)) continue;
        HandReplica& own = layout.replicas.emplace_back();
        for (const ModuleId module : plan().module_groups[replica.group.index()].modules)
          own.modules.push_back(plan().model.at(module).name);
        own.stages = as_written(plan(), replica.stages);
      }
    }
    if (layout.empty()) return std::nullopt;
    auto placed = place(layout);  // Refuses a group without a replica.
    if (!placed.ok()) return std::nullopt;
    return std::move(placed).value();
  }

  /// Entries of a pipeline on these nodes; none where no template has as many.
  std::optional<std::vector<HandStage>> from_template(const RankList& ranks) const {
    const std::vector<std::int32_t> nodes(ranks.begin(), ranks.end());
    for (const PipelineTemplate& made : request_.templates.templates)
      if (made.node_count == static_cast<std::int32_t>(nodes.size()))
        return stages_of_template(plan().model, layers_of(plan().model), made, nodes,
                                  request_.templates.stage_kinds);
    return std::nullopt;
  }

  /// Each pipeline on these nodes: as it stands where it has them, else from a template.
  std::optional<Relayout> on_nodes(const std::vector<RankList>& pipelines,
                                   const std::map<RankList, PipelineId>& standing) const {
    HandLayout layout;
    for (const RankList& nodes : pipelines) {
      const auto same = standing.find(nodes);
      auto stages = same == standing.end()
                        ? from_template(nodes)
                        : std::optional(as_written(plan(), plan().stages_of(same->second)));
      if (!stages) return std::nullopt;
      layout.pipelines.push_back(*std::move(stages));
    }
    auto placed = place(layout);
    if (!placed.ok()) return std::nullopt;
    return std::move(placed).value();
  }

  std::optional<Relayout> reconfigured() const {
    if (request_.templates.templates.empty()) return std::nullopt;
    ReconfigureRequest change;
    std::map<RankList, PipelineId> standing;
    std::set<NodeId> working;
    for (std::size_t p = 0; p < plan().pipelines.size(); ++p) {
      RankList& ranks = change.pipelines.emplace_back();
      for (const NodeId node : nodes_of(plan().stages_of(PipelineId{p}))) {
        ranks.push_back(node.value);
        if (!working.insert(node).second) return std::nullopt;  // Shared by two pipelines.
        if (!request_.nodes.contains(node)) change.lost.push_back(node.value);
      }
      standing[ranks] = PipelineId{p};
    }
    for (const NodeId node : request_.nodes)
      if (!working.contains(node)) change.joined.push_back(node.value);
    change.minimum = request_.templates.min_nodes;
    for (change.fault_tolerance = request_.tolerance.lost_nodes; change.fault_tolerance >= 0;
         --change.fault_tolerance) {
      const auto changed = reconfigure(change);
      if (!changed.ok()) continue;
      if (auto made = on_nodes(changed.value(), standing)) return made;
    }
    return std::nullopt;
  }

  Result<Relayout> combined() const {
    RecoveryModel model;
    model.templates = request_.templates;
    RankList nodes;
    for (const NodeId node : request_.nodes) nodes.push_back(node.value);
    model.global_batch = request_.global_batch;
    Error last{Errc::infeasible,
               "the layout cannot go on without the nodes that were lost, and the model was cut in "
               "no other way",
               "cluster.nodes", "start the job again with a layout for the nodes there are"};
    if (model.templates.templates.empty()) return last;
    for (model.fault_tolerance = request_.tolerance.lost_nodes; model.fault_tolerance >= 0;
         --model.fault_tolerance) {
      const auto best = combined_layout(model, nodes);
      if (!best.ok()) {
        last = best.error();
        continue;
      }
      if (auto made = on_nodes(best.value().pipelines, {})) return *std::move(made);
    }
    return last;
  }

  /// The longer they are, the less state a device has; the more of them, the fewer samples.
  std::vector<Relayout> even_pipelines() const {
    std::vector<Relayout> found;
    if (request_.templates.templates.empty()) return found;
    const std::vector<NodeId> nodes(request_.nodes.begin(), request_.nodes.end());
    const auto all = std::ssize(nodes);
    std::int64_t count_before = 0;
    const auto add = [&](std::int64_t length) {
      const std::int64_t count = length > 0 ? all / length : 0;
      if (count < 1 || count == count_before || count > request_.global_batch) return;
      count_before = count;
      std::vector<RankList> pipelines(static_cast<std::size_t>(count));
      for (std::int64_t n = 0; n < all; ++n)
        pipelines[static_cast<std::size_t>(n * count / all)].push_back(
            nodes[static_cast<std::size_t>(n)].value);
      if (auto made = on_nodes(pipelines, {})) found.push_back(*std::move(made));
    };
    for (std::int64_t length = request_.templates.min_nodes; length <= all; length *= 2) {
      if (length < 1) break;
      add(length);
      add(length * 3 / 2);
    }
    return found;
  }

  const RelayoutRequest& request_;
};

}  // namespace

Result<std::vector<Relayout>> relayouts(const RelayoutRequest& request) {
  return Relayouter(request).find_all();
}

Result<Relayout> relayout_by_hand(const RelayoutRequest& request, const HandLayout& layout) {
  return Relayouter(request).place(layout);
}

}  // namespace troupe::scheduler
