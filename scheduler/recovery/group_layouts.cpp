#include "scheduler/recovery/group_layouts.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "scheduler/recovery/reconfigure.hpp"
#include "scheduler/recovery/replica_sizes.hpp"
#include "scheduler/recovery/template_layout.hpp"

namespace troupe::scheduler {

namespace {

/// Replicas of a group that share devices, directly or by others of it: they change together.
struct Bundle {
  std::set<std::int64_t> devices;
  std::vector<ReplicaId> replicas;
};

/// Those of a group, which are disjoint. One whose replicas are in a later one is empty.
struct Bundles {
  std::vector<Bundle> all;
  std::map<std::int64_t, std::size_t> of_device;

  void add(Bundle own) {
    for (const auto device : std::set<std::int64_t>(own.devices)) {
      const auto found = of_device.find(device);
      if (found == of_device.end()) continue;
      Bundle other = std::exchange(all[found->second], {});
      own.devices.merge(other.devices);
      own.replicas.insert(own.replicas.begin(), other.replicas.begin(), other.replicas.end());
    }
    for (const auto device : own.devices) of_device[device] = all.size();
    all.push_back(std::move(own));
  }
};

/// The replicas of a group, and which devices come and go. A device is a number: those of a node
/// follow each other.
struct Group {
  std::vector<RankList> replicas;  ///< Devices of each, or of those that share some.
  std::map<RankList, std::vector<ReplicaId>> standing;
  std::set<std::int64_t> working;  ///< Devices of its replicas, lost ones too.
  RankList lost, joined;
  ReplicaSizes sizes;
  double work_ms = 1;  ///< Of a microbatch in all its layers.

  /// Devices of the smallest replica, before any were lost.
  std::int64_t smallest() const {
    const auto found =
        std::min_element(replicas.begin(), replicas.end(),
                         [](const RankList& a, const RankList& b) { return a.size() < b.size(); });
    return static_cast<std::int64_t>(found->size());
  }

  std::int64_t devices() const {
    return std::ssize(working) + std::ssize(joined) - std::ssize(lost);
  }
};

class GroupLayouter {
 public:
  explicit GroupLayouter(const RelayoutRequest& request) : request_(request) {}

  std::vector<HandLayout> find() {
    if (!read_groups()) return {};
    std::vector<HandLayout> layouts;
    if (!share_devices_) layouts = find_apart();
    if (layouts.empty() && share_nodes_) layouts = find_on_shared_devices();
    return layouts;
  }

 private:
  const ParallelPlan& plan() const { return request_.plan; }
  std::int64_t devices_per_node() const { return request_.cluster.devices_per_node; }

  bool is_there(std::int64_t device) const {
    return request_.nodes.contains(NodeId{device / devices_per_node()});
  }

  /// Devices of the nodes that are there, without these.
  RankList devices_beside(const std::set<std::int64_t>& working) const {
    RankList devices;
    for (const NodeId node : request_.nodes)
      for (std::int64_t d = 0; d < devices_per_node(); ++d)
        if (const auto device = node.value * devices_per_node() + d; !working.contains(device))
          devices.push_back(device);
    return devices;
  }

  /// False where templates do not allow to cut groups by themselves.
  bool read_groups() {
    if (request_.templates.groups.size() != plan().module_groups.size()) return false;
    groups_.resize(plan().module_groups.size());
    std::vector<Bundles> bundles(groups_.size());
    for (std::size_t r = 0; r < plan().replicas.size(); ++r) {
      const Replica& replica = plan().replicas[r];
      Bundle own{{}, {ReplicaId{r}}};
      for (const StageId stage : replica.stages)
        for (const DeviceId device : plan().at(stage).devices) {
          const DeviceSlot& slot = plan().devices[device.index()];
          own.devices.insert(slot.node.value * devices_per_node() + slot.local_index);
        }
      bundles[replica.group.index()].add(std::move(own));
    }
    std::set<std::int64_t> working;
    std::map<std::int64_t, std::size_t> group_of_node;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      for (const Bundle& bundle : bundles[g].all) {
        if (bundle.replicas.empty()) continue;  // Its replicas are in a later one.
        const RankList devices(bundle.devices.begin(), bundle.devices.end());
        for (const auto device : devices) {
          if (!working.insert(device).second) share_devices_ = true;
          if (group_of_node.emplace(device / devices_per_node(), g).first->second != g)
            share_nodes_ = true;
          if (!is_there(device)) group.lost.push_back(device);
        }
        group.working.insert(devices.begin(), devices.end());
        group.standing[devices] = bundle.replicas;
        group.replicas.push_back(devices);
      }
      const TemplateSet& set = request_.templates.groups[g];
      if (set.templates.empty()) return false;
      group.sizes = {set.min_nodes, set.templates.back().node_count};
      group.work_ms = work_ms(ModuleGroupId{g});
    }
    free_ = devices_beside(working);
    return true;
  }

  /// By what is known of the layers; 1: nothing is.
  double work_ms(ModuleGroupId group) const {
    const auto layers = layers_of(plan().model);
    if (request_.templates.layer_ms.size() != layers.size()) return 1;
    double sum = 0;
    for (std::size_t l = 0; l < layers.size(); ++l)
      if (plan().group_of(layers[l].module) == group) sum += request_.templates.layer_ms[l];
    return sum;
  }

  /// Groups on devices of their own stay apart. Ways that leave more devices without work than
  /// another one have no other merit.
  std::vector<HandLayout> find_apart() const {
    std::vector<HandLayout> layouts;
    std::size_t most = 0;
    const std::size_t ways = free_.empty() ? 1 : groups_.size() + 1;
    for (std::size_t way = 0; way < ways; ++way) {
      auto groups = groups_;
      if (way == 0)
        deal_free(groups);
      else
        groups[way - 1].joined = free_;
      if (!even_out(groups)) continue;
      auto layout = lay_out(groups);
      if (!layout) continue;
      const std::size_t used = used_devices(*layout);
      if (used > most) layouts.clear();
      most = std::max(most, used);
      if (used == most) add(*std::move(layout), layouts);
    }
    return layouts;
  }

  void deal_free(std::vector<Group>& groups) const {
    std::vector<GroupNeed> needs;
    for (const Group& group : groups)
      needs.push_back({group.sizes, group.devices(), group.work_ms});
    const auto dealt = deal_devices(needs, std::ssize(free_));
    // Each a part of the order, so that replicas lie on as few nodes as may be.
    auto next = free_.begin();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      groups[g].joined.assign(next, next + dealt[g]);
      next += dealt[g];
    }
  }

  static std::size_t used_devices(const HandLayout& layout) {
    std::set<std::pair<std::int32_t, std::int32_t>> used;
    for (const HandStage* stage : layout.all_stages()) used.emplace(stage->node, stage->device);
    return used.size();
  }

  static void add(HandLayout layout, std::vector<HandLayout>& layouts) {
    if (std::find(layouts.begin(), layouts.end(), layout) == layouts.end())
      layouts.push_back(std::move(layout));
  }

  /// First with replicas as small as templates have them. These weigh a group's memory alone, and a
  /// device that has stages of several groups holds less of each: then with larger ones, up to
  /// replicas as large as there were, which had room.
  std::vector<HandLayout> find_on_shared_devices() const {
    std::vector<HandLayout> layouts;
    bool is_last = false;
    for (std::int64_t scale = 1; !is_last; scale *= 2) {
      is_last = true;
      auto groups = groups_;
      for (Group& group : groups) {
        auto& [least, most] = group.sizes;
        const auto largest = std::clamp(group.smallest(), least, most);
        is_last = is_last && least * scale >= largest;
        least = std::min(least * scale, largest);
      }
      add_on_shared_devices(groups, layouts);
    }
    return layouts;
  }

  /// Devices without work go to all groups, or to one.
  void add_on_shared_devices(const std::vector<Group>& groups,
                             std::vector<HandLayout>& layouts) const {
    const std::size_t ways = free_.empty() ? 1 : groups.size() + 1;
    for (std::size_t way = 0; way < ways; ++way) {
      auto own = groups;
      for (std::size_t g = 0; g < own.size(); ++g) {
        if (way == 0 || way == g + 1) own[g].joined = free_;
        if (own[g].devices() < own[g].sizes.least) own[g].joined = devices_beside(own[g].working);
      }
      if (auto layout = lay_out(own)) add(*std::move(layout), layouts);
    }
  }

  /// Moves devices between groups until each has enough for a replica.
  static bool even_out(std::vector<Group>& groups) {
    for (Group& poor : groups)
      while (poor.devices() < poor.sizes.least) {
        const auto spare = [](const Group& group) { return group.devices() - group.sizes.least; };
        const auto rich =
            std::max_element(groups.begin(), groups.end(),
                             [&](const Group& a, const Group& b) { return spare(a) < spare(b); });
        if (spare(*rich) <= 0) return false;
        poor.joined.push_back(give(*rich));
      }
    return true;
  }

  /// A device of a group that has some: one without work, or the last of its largest replica.
  static std::int64_t give(Group& group) {
    if (!group.joined.empty()) {
      const auto device = group.joined.back();
      group.joined.pop_back();
      return device;
    }
    RankList largest;
    for (const RankList& replica : group.replicas)
      if (auto own = left_of(replica, group.lost); own.size() >= largest.size())
        largest = std::move(own);
    group.lost.push_back(largest.back());
    return largest.back();
  }

  static RankList left_of(const RankList& replica, const RankList& lost) {
    RankList left;
    for (const auto device : replica)
      if (std::find(lost.begin(), lost.end(), device) == lost.end()) left.push_back(device);
    return left;
  }

  /// Leaves devices without work: of those that join, then of replicas that lost some.
  static void leave_out(Group& group, std::int64_t count) {
    for (; count > 0 && !group.joined.empty(); --count) group.joined.pop_back();
    for (const RankList& replica : group.replicas) {
      if (count == 0) return;
      RankList left = left_of(replica, group.lost);
      if (left.size() == replica.size()) continue;
      for (; count > 0 && !left.empty(); --count) {
        group.lost.push_back(left.back());
        left.pop_back();
      }
    }
  }

  std::optional<std::vector<RankList>> changed(Group group) const {
    // Beyond what any number of replicas uses, reconfiguration would make one that has no template.
    leave_out(group, group.devices() - group.sizes.used_of(group.devices()));
    ReconfigureRequest change;
    change.pipelines = group.replicas;
    change.minimum = group.sizes.least;
    change.lost = group.lost;
    change.joined = group.joined;
    for (change.fault_tolerance = request_.tolerance.lost_nodes; change.fault_tolerance >= 0;
         --change.fault_tolerance) {
      auto made = reconfigure(change);
      if (!made.ok()) continue;
      fit_replicas(made.value(), group.sizes,
                   [&](const RankList& own) { return group.standing.contains(own); });
      return std::move(made).value();
    }
    return std::nullopt;
  }

  std::optional<HandLayout> lay_out(const std::vector<Group>& groups) const {
    HandLayout layout;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto replicas = changed(groups[g]);
      if (!replicas) return std::nullopt;
      for (const RankList& devices : *replicas) {
        const auto same = groups[g].standing.find(devices);
        if (same == groups[g].standing.end()) {
          auto stages = from_template(ModuleGroupId{g}, devices);
          if (!stages) return std::nullopt;
          layout.replicas.push_back({names_of(g), *std::move(stages)});
          continue;
        }
        for (const ReplicaId id : same->second)
          layout.replicas.push_back({names_of(g), as_written(plan(), plan().at(id).stages)});
      }
    }
    return layout;
  }

  std::vector<std::string> names_of(std::size_t group) const {
    std::vector<std::string> names;
    for (const ModuleId module : plan().module_groups[group].modules)
      names.push_back(plan().model.at(module).name);
    return names;
  }

  std::optional<std::vector<HandStage>> from_template(ModuleGroupId group,
                                                      const RankList& ranks) const {
    const auto& own = plan().module_groups[group.index()].modules;
    const std::vector<std::int32_t> devices(ranks.begin(), ranks.end());
    const TemplateSet& set = request_.templates.groups[group.index()];
    for (const PipelineTemplate& made : set.templates) {
      if (made.node_count != static_cast<std::int32_t>(devices.size())) continue;
      auto stages = stages_of_template(plan().model, layers_of(plan().model, own), made, devices,
                                       set.stage_kinds);
      // A group's templates have one device per node, which stands for any.
      for (HandStage& stage : *stages) {
        stage.device = stage.node % request_.cluster.devices_per_node;
        stage.node /= request_.cluster.devices_per_node;
      }
      return stages;
    }
    return std::nullopt;
  }

  const RelayoutRequest& request_;
  std::vector<Group> groups_;
  RankList free_;               ///< Devices without work.
  bool share_devices_ = false;  ///< A device works for several groups.
  bool share_nodes_ = false;    ///< A node does.
};

}  // namespace

std::vector<HandLayout> group_layouts(const RelayoutRequest& request) {
  return GroupLayouter(request).find();
}

}  // namespace troupe::scheduler
