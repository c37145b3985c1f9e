#include "scheduler/recovery/group_layouts.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "scheduler/recovery/reconfigure.hpp"
#include "scheduler/recovery/template_layout.hpp"

namespace troupe::scheduler {

namespace {

/// Replicas of a group that share nodes, directly or by others of it: they change together.
struct Bundle {
  std::set<NodeId> nodes;
  std::vector<ReplicaId> replicas;
};

/// The replicas of a group, and which nodes come and go.
struct Group {
  std::vector<RankList> replicas;  ///< Nodes of each, or of those that share nodes.
  std::map<RankList, std::vector<ReplicaId>> standing;
  std::set<NodeId> working;  ///< Nodes of its replicas, lost ones too.
  RankList lost, joined;
  std::int64_t minimum = 1;

  /// Nodes of the smallest replica, before any were lost.
  std::int64_t smallest() const {
    const auto found =
        std::min_element(replicas.begin(), replicas.end(),
                         [](const RankList& a, const RankList& b) { return a.size() < b.size(); });
    return static_cast<std::int64_t>(found->size());
  }

  std::int64_t nodes() const {
    std::int64_t count =
        static_cast<std::int64_t>(joined.size()) - static_cast<std::int64_t>(lost.size());
    for (const RankList& replica : replicas) count += static_cast<std::int64_t>(replica.size());
    return count;
  }
};

class GroupLayouter {
 public:
  explicit GroupLayouter(const RelayoutRequest& request) : request_(request) {}

  std::vector<HandLayout> find() {
    if (!read_groups()) return {};
    if (share_nodes_) return find_on_shared_nodes();
    std::vector<HandLayout> layouts;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      auto groups = groups_;
      groups[g].joined = free_;
      if (!even_out(groups)) continue;
      if (auto layout = lay_out(groups)) layouts.push_back(*std::move(layout));
      if (free_.empty()) break;  // All ways are the same.
    }
    return layouts;
  }

 private:
  const ParallelPlan& plan() const { return request_.plan; }

  /// False where nodes or templates do not allow to cut groups by themselves.
  bool read_groups() {
    if (request_.templates.groups.size() != plan().module_groups.size()) return false;
    groups_.resize(plan().module_groups.size());
    std::vector<std::vector<Bundle>> bundles(groups_.size());
    for (std::size_t r = 0; r < plan().replicas.size(); ++r) {
      const Replica& replica = plan().replicas[r];
      Bundle own{{}, {ReplicaId{r}}};
      for (const StageId stage : replica.stages)
        for (const DeviceId device : plan().at(stage).devices)
          own.nodes.insert(plan().devices[device.index()].node);
      add(std::move(own), bundles[replica.group.index()]);
    }
    std::set<NodeId> working;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (const Bundle& bundle : bundles[g]) {
        Group& group = groups_[g];
        RankList ranks;
        for (const NodeId node : bundle.nodes) {
          group.working.insert(node);
          if (!working.insert(node).second) share_nodes_ = true;
          ranks.push_back(node.value);
          if (!request_.nodes.contains(node)) group.lost.push_back(node.value);
        }
        group.standing[ranks] = bundle.replicas;
        group.replicas.push_back(std::move(ranks));
      }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      groups_[g].minimum = request_.templates.groups[g].min_nodes;
      if (request_.templates.groups[g].templates.empty()) return false;
    }
    for (const NodeId node : request_.nodes)
      if (!working.contains(node)) free_.push_back(node.value);
    return true;
  }

  /// Adds a replica to the bundles of its group, which are disjoint.
  static void add(Bundle own, std::vector<Bundle>& bundles) {
    std::set<NodeId> nodes = own.nodes;
    std::erase_if(bundles, [&](const Bundle& other) {
      const bool is_shared = std::any_of(other.nodes.begin(), other.nodes.end(),
                                         [&](NodeId node) { return own.nodes.contains(node); });
      if (!is_shared) return false;
      nodes.insert(other.nodes.begin(), other.nodes.end());
      own.replicas.insert(own.replicas.begin(), other.replicas.begin(), other.replicas.end());
      return true;
    });
    own.nodes = std::move(nodes);
    bundles.push_back(std::move(own));
  }

  /// First with replicas as small as templates have them. These weigh a group's memory alone, and a
  /// device that has stages of several groups holds less of each: then with larger ones, up to
  /// replicas as large as there were, which had room.
  std::vector<HandLayout> find_on_shared_nodes() const {
    std::vector<HandLayout> layouts;
    bool is_last = false;
    for (std::int64_t scale = 1; !is_last; scale *= 2) {
      is_last = true;
      auto groups = groups_;
      for (Group& group : groups) {
        const auto largest = std::max(group.minimum, group.smallest());
        is_last = is_last && group.minimum * scale >= largest;
        group.minimum = std::min(group.minimum * scale, largest);
      }
      add_on_shared_nodes(groups, layouts);
    }
    return layouts;
  }

  /// Nodes without work go to all groups, or to one.
  void add_on_shared_nodes(const std::vector<Group>& groups,
                           std::vector<HandLayout>& layouts) const {
    const std::size_t ways = free_.empty() ? 1 : groups.size() + 1;
    for (std::size_t way = 0; way < ways; ++way) {
      auto own = groups;
      for (std::size_t g = 0; g < own.size(); ++g) {
        if (way == 0 || way == g + 1) own[g].joined = free_;
        if (own[g].nodes() < own[g].minimum) own[g].joined = nodes_beside(own[g]);
      }
      auto layout = lay_out(own);
      if (layout && std::find(layouts.begin(), layouts.end(), *layout) == layouts.end())
        layouts.push_back(*std::move(layout));
    }
  }

  /// All nodes that are there and do not work for the group.
  RankList nodes_beside(const Group& group) const {
    RankList nodes;
    for (const NodeId node : request_.nodes)
      if (!group.working.contains(node)) nodes.push_back(node.value);
    return nodes;
  }

  /// Moves nodes between groups until each has enough for a replica.
  static bool even_out(std::vector<Group>& groups) {
    for (Group& poor : groups)
      while (poor.nodes() < poor.minimum) {
        const auto spare = [](const Group& group) { return group.nodes() - group.minimum; };
        const auto rich =
            std::max_element(groups.begin(), groups.end(),
                             [&](const Group& a, const Group& b) { return spare(a) < spare(b); });
        if (spare(*rich) <= 0) return false;
        poor.joined.push_back(give(*rich));
      }
    return true;
  }

  /// A node of a group that has some: one without work, or the last of its largest replica.
  static std::int64_t give(Group& group) {
    if (!group.joined.empty()) {
      const auto node = group.joined.back();
      group.joined.pop_back();
      return node;
    }
    const auto left = [&](const RankList& replica) {
      RankList nodes;
      for (const auto node : replica)
        if (std::find(group.lost.begin(), group.lost.end(), node) == group.lost.end())
          nodes.push_back(node);
      return nodes;
    };
    RankList largest;
    for (const RankList& replica : group.replicas)
      if (auto nodes = left(replica); nodes.size() >= largest.size()) largest = std::move(nodes);
    group.lost.push_back(largest.back());
    return largest.back();
  }

  std::optional<std::vector<RankList>> changed(const Group& group) const {
    ReconfigureRequest change;
    change.pipelines = group.replicas;
    change.minimum = group.minimum;
    change.lost = group.lost;
    change.joined = group.joined;
    for (change.fault_tolerance = request_.tolerance.lost_nodes; change.fault_tolerance >= 0;
         --change.fault_tolerance)
      if (auto made = reconfigure(change); made.ok()) return std::move(made).value();
    return std::nullopt;
  }

  std::optional<HandLayout> lay_out(const std::vector<Group>& groups) const {
    HandLayout layout;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto replicas = changed(groups[g]);
      if (!replicas) return std::nullopt;
      for (const RankList& nodes : *replicas) {
        const auto same = groups[g].standing.find(nodes);
        if (same == groups[g].standing.end()) {
          auto stages = from_template(ModuleGroupId{g}, nodes);
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
    const std::vector<std::int32_t> nodes(ranks.begin(), ranks.end());
    for (const PipelineTemplate& made : request_.templates.groups[group.index()].templates)
      if (made.node_count == static_cast<std::int32_t>(nodes.size()))
        return stages_of_template(plan().model, layers_of(plan().model, own), made, nodes);
    return std::nullopt;
  }

  const RelayoutRequest& request_;
  std::vector<Group> groups_;
  RankList free_;             ///< Nodes without work.
  bool share_nodes_ = false;  ///< A node works for several groups.
};

}  // namespace

std::vector<HandLayout> group_layouts(const RelayoutRequest& request) {
  return GroupLayouter(request).find();
}

}  // namespace troupe::scheduler
