#include "scheduler/check/check_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/check/call_order.hpp"
#include "scheduler/check/delivery_check.hpp"
#include "scheduler/check/message_check.hpp"
#include "scheduler/check/parameter_check.hpp"
#include "scheduler/check/route_check.hpp"
#include "scheduler/iteration/expected_actions.hpp"
#include "scheduler/iteration/redistribution.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/iteration/wait_graph.hpp"

namespace troupe::scheduler {

namespace {

/// A stage has a device for each of its ranks: different ones, all of one node.
std::vector<Fault> grid_faults(const ParallelPlan& plan) {
  std::vector<Fault> faults;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const auto& devices = plan.stages[s].devices;
    const auto report = [&](FaultKind kind, DeviceId device, std::string why) {
      faults.push_back({kind, device, "devices of stage " + std::to_string(s), std::move(why)});
    };
    const auto ranks = static_cast<std::size_t>(plan.stages[s].grid.ranks());
    if (devices.size() != ranks)
      report(devices.size() < ranks ? FaultKind::missing : FaultKind::unknown, {},
             "there are " + std::to_string(devices.size()) + ", its grid has " +
                 std::to_string(ranks) + " ranks");
    std::set<DeviceId> seen;
    std::optional<NodeId> node;
    for (const DeviceId device : devices) {
      if (device.index() >= plan.devices.size()) {
        report(FaultKind::unknown, device, "the layout has no such device");
        continue;
      }
      const NodeId here = plan.devices[device.index()].node;
      if (node.value_or(here) != here)
        report(FaultKind::unknown, device, "its ranks stand on two nodes");
      node = here;
      if (devices.size() > 1 && !seen.insert(device).second)
        report(FaultKind::duplicate, device, "two of its ranks are one device");
    }
  }
  return faults;
}

/// Whether these pieces of a sample, each as often as it stands in a group, are all its items for
/// each encoder there, once.
bool are_all_items(const IterationPlan& iteration, const ModuleGroup& group, std::size_t sample,
                   std::span<const std::size_t> pieces) {
  std::map<ModuleId, std::vector<std::int32_t>> taken;  // How often each item.
  for (const ModuleId module : group.modules)
    if (const auto* items = iteration.samples[sample].items(module))
      taken[module].resize(items->size());
  for (const std::size_t p : pieces) {
    const SamplePiece& piece = iteration.pieces[p];
    const auto own = taken.find(piece.module);
    if (own == taken.end()) return false;
    for (std::int32_t i = 0; i < piece.count; ++i) ++own->second[at(piece.first + i)];
  }
  return std::all_of(taken.begin(), taken.end(), [](const auto& entry) {
    return std::all_of(entry.second.begin(), entry.second.end(),
                       [](std::int32_t times) { return times == 1; });
  });
}

/// Samples stand once per module group, whole or in pieces, indices exist, lists have the right
/// lengths, the loss the right divisor. Everything later relies on this.
std::vector<Fault> shape_faults(const ParallelPlan& plan, const IterationPlan& iteration) {
  std::vector<Fault> faults;
  const auto wrong_size = [&](const char* what, std::size_t found, std::size_t expected) {
    if (found != expected)
      faults.push_back({found < expected ? FaultKind::missing : FaultKind::unknown,
                        {},
                        what,
                        "there are " + std::to_string(found) + ", the layout calls for " +
                            std::to_string(expected)});
  };
  wrong_size("lists of actions", iteration.actions.size(), plan.devices.size());
  if (plan.leads != list_leads(plan))
    faults.push_back(
        {FaultKind::unknown,
         {},
         "leads",
         "a device is to run the list of one that has other stages, or one of its own"});
  wrong_size("lists of microbatches", iteration.microbatches.size(), plan.replicas.size());
  wrong_size("bounds on microbatches in flight", iteration.max_in_flight.size(),
             plan.stages.size());
  TokenCount trained = 0;
  for (const auto& sample : iteration.samples) trained += sample.trained_tokens;
  if (trained != iteration.trained_tokens)
    faults.push_back({iteration.trained_tokens < trained ? FaultKind::missing : FaultKind::unknown,
                      {},
                      "trained tokens",
                      "the loss is divided by " + std::to_string(iteration.trained_tokens) +
                          ", the samples have " + std::to_string(trained)});
  if (iteration.microbatches.size() != plan.replicas.size()) return faults;
  const std::size_t faults_before = faults.size();
  for (std::size_t p = 0; p < iteration.pieces.size(); ++p)
    if (!is_sound(iteration.pieces[p], iteration.samples))
      faults.push_back({FaultKind::unknown,
                        {},
                        "piece " + std::to_string(p),
                        "its sample has no such items for this module"});
  if (faults.size() > faults_before) return faults;
  for (std::size_t g = 0; g < plan.module_groups.size(); ++g) {
    std::vector<std::int32_t> places(iteration.samples.size() + iteration.pieces.size());
    std::map<std::size_t, std::vector<std::size_t>> pieces;  // By sample, as often as they stand.
    const std::string& name = plan.module_groups[g].name;
    for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
      if (plan.replicas[r].group != ModuleGroupId{g}) continue;
      for (const auto& microbatch : iteration.microbatches[r])
        for (const auto& part : microbatch.parts)
          for (const auto sample : part.samples) {
            if (sample >= 0 && at(sample) < places.size()) {
              ++places[at(sample)];
              const auto piece = std::ptrdiff_t{sample} - std::ssize(iteration.samples);
              if (piece >= 0)
                pieces[at(iteration.pieces[static_cast<std::size_t>(piece)].sample)].push_back(
                    static_cast<std::size_t>(piece));
            } else {
              faults.push_back({FaultKind::unknown,
                                {},
                                name + " sample " + std::to_string(sample),
                                "the iteration has no such sample"});
            }
          }
    }
    for (std::size_t s = 0; s < iteration.samples.size(); ++s) {
      const auto cut = pieces.find(s);
      if (cut != pieces.end() && places[s] == 0) {
        if (!are_all_items(iteration, plan.module_groups[g], s, cut->second))
          faults.push_back({FaultKind::duplicate,
                            {},
                            name + " sample " + std::to_string(s),
                            "its pieces leave items out, or have some twice"});
        continue;
      }
      if (cut != pieces.end()) places[s] += static_cast<std::int32_t>(cut->second.size());
      if (places[s] != 1)
        faults.push_back({places[s] == 0 ? FaultKind::missing : FaultKind::duplicate,
                          {},
                          name + " sample " + std::to_string(s),
                          "it stands in " + std::to_string(places[s]) + " parts of this group"});
    }
  }
  return faults;
}

/// Checks the lists against what must happen.
class ListCheck {
 public:
  ListCheck(const ParallelPlan& plan, const IterationPlan& iteration)
      : plan_(plan),
        iteration_(iteration),
        flow_(plan.model, SampleUnits(iteration.samples, iteration.pieces).shapes()),
        expected_(expected_actions(plan, iteration, flow_, split_parts(), offloaded_parts())),
        count_(expected_.actions.size()) {}

  std::vector<Fault> faults() {
    place();
    for (std::size_t a = 0; a < expected_.actions.size(); ++a)
      if (count_[a] == 0)
        report(FaultKind::missing, expected_.actions[a].device, expected_.actions[a].action,
               "it is in no list");
    check_order();
    check_memory();
    for (const auto& list : waits_.lists) check_state(list);
    return std::move(faults_);
  }

 private:
  /// Parts for which the lists have an action of such a kind. Sorted.
  template <class IsWanted>
  std::vector<MessageEnd> parts_with(IsWanted is_wanted) const {
    std::vector<MessageEnd> parts;
    for (const auto& list : iteration_.actions)
      for (const auto& action : list)
        if (is_wanted(action.kind)) parts.push_back({action.stage, action.microbatch, action.part});
    std::sort(parts.begin(), parts.end());
    return parts;
  }
  SplitParts split_parts() const {
    return parts_with([](ActionKind kind) {
      return kind == ActionKind::backward_input || kind == ActionKind::backward_weight;
    });
  }
  OffloadedParts offloaded_parts() const { return parts_with(moves_activations); }

  void report(FaultKind kind, std::int32_t device, const Action& action, std::string why) {
    faults_.push_back({kind, DeviceId{device}, describe(plan_, action), std::move(why)});
  }

  /// Finds every listed action among the expected ones.
  void place() {
    waits_.lists.resize(iteration_.actions.size());
    for (std::size_t d = 0; d < iteration_.actions.size(); ++d) {
      const auto device = static_cast<std::int32_t>(d);
      for (const auto& action : iteration_.actions[d]) {
        // They wait for nothing, and nobody on another device for them (`parameter_faults`).
        if (moves_parameters(action.kind)) continue;
        const SitedAction sited{action, device};
        const auto found =
            std::lower_bound(expected_.actions.begin(), expected_.actions.end(), sited);
        if (found == expected_.actions.end() || *found != sited) {
          report(FaultKind::unknown, device, action, "nothing calls for it on this device");
          continue;
        }
        const auto index = static_cast<std::size_t>(found - expected_.actions.begin());
        if (++count_[index] > 1)
          report(FaultKind::duplicate, device, action, "it stands in the list more than once");
        else
          waits_.lists[d].push_back(static_cast<std::int32_t>(index));
      }
    }
  }

  void check_order() {
    waits_.nodes = static_cast<std::int32_t>(expected_.actions.size()) + 1;
    waits_.needs = expected_.needs;
    // `commit` ends on all devices at once: one more node that needs all that stands before.
    // Compute of a grid begins in all of its lists at once, in the same way.
    const std::int32_t all_prepared = waits_.nodes - 1;
    std::vector<std::int32_t> meeting_of(expected_.actions.size(), -1);
    for (const auto& copies : expected_.rendezvous) {
      for (const auto copy : copies) meeting_of[at(copy)] = waits_.nodes;
      ++waits_.nodes;
    }
    for (const auto& list : waits_.lists)
      for (std::size_t i = 0; i < list.size(); ++i) {
        const bool ends = action(list[i]).kind == ActionKind::commit;
        const auto meeting = ends ? all_prepared : meeting_of[at(list[i])];
        if (meeting < 0) continue;
        if (i > 0) waits_.needs.emplace_back(meeting, list[i - 1]);
        waits_.needs.emplace_back(list[i], meeting);
      }
    const auto faults = find_wait_faults(waits_);
    for (const auto& [node, need] : faults.misplaced)
      report(FaultKind::dependency, device(node), action(node),
             "it stands before " + describe(plan_, action(need)) + ", which it needs");
    for (const auto& [head, need] : faults.stuck)
      report(FaultKind::deadlock, device(head), action(head),
             need == all_prepared ? "another device never comes to commit"
             : need > all_prepared
                 ? "another device of its grid never comes to it"
                 : "it waits for " + describe(plan_, action(need)) + " on device " +
                       std::to_string(device(need)) + ", which never comes");
  }

  const Action& action(std::int32_t node) const { return expected_.actions[at(node)].action; }
  std::int32_t device(std::int32_t node) const { return expected_.actions[at(node)].device; }

  /// Microbatches between their first forward and the end of their last action, per stage.
  void check_memory() {
    std::map<std::pair<StageId, MicrobatchId>, std::int32_t> left;
    // Compute, on the first of a stage's lists: the others run the same.
    const auto counts = [&](std::int32_t node) {
      return action(node).microbatch.valid() &&
             plan_.lead_of(plan_.at(action(node).stage).devices.front()).value == device(node);
    };
    for (const auto& list : waits_.lists)
      for (const auto node : list)
        if (counts(node)) ++left[{action(node).stage, action(node).microbatch}];
    std::vector<std::int32_t> in_flight(plan_.stages.size());
    std::vector<bool> reported(plan_.stages.size());
    for (const auto& list : waits_.lists) {
      std::set<std::pair<StageId, MicrobatchId>> begun;
      for (const auto node : list) {
        const Action& next = action(node);
        if (!counts(node)) continue;
        const auto stage = next.stage.index();
        const std::pair key{next.stage, next.microbatch};
        if (begun.insert(key).second && ++in_flight[stage] > iteration_.max_in_flight[stage] &&
            !reported[stage]) {
          reported[stage] = true;
          report(FaultKind::memory, device(node), next,
                 "microbatch " + std::to_string(in_flight[stage]) +
                     " in flight on this stage; the plan promised at most " +
                     std::to_string(iteration_.max_in_flight[stage]));
        }
        if (--left[key] == 0) --in_flight[stage];
      }
    }
  }

  /// Moments that are in host memory are on the device one group at a time: what it has room for.
  void check_state(const std::vector<std::int32_t>& list) {
    const Action* here = nullptr;
    for (const auto node : list) {
      const Action& next = action(node);
      if (next.kind == ActionKind::offload_state) here = nullptr;
      if (next.kind != ActionKind::fetch_state) continue;
      if (here != nullptr)
        report(FaultKind::memory, device(node), next,
               "it comes beside that of " + describe(plan_, *here) + ", which has not gone back");
      here = &next;
    }
  }

  const ParallelPlan& plan_;
  const IterationPlan& iteration_;
  const RowFlow flow_;
  const ExpectedActions expected_;
  std::vector<std::int32_t> count_;  // Per expected action: how often it is listed.
  WaitGraph waits_;
  std::vector<Fault> faults_;
};

}  // namespace

std::vector<Fault> check(const ParallelPlan& plan, const IterationPlan& iteration) {
  auto faults = grid_faults(plan);
  if (faults.empty()) faults = shape_faults(plan, iteration);
  if (!faults.empty()) return faults;
  faults = message_faults(plan, iteration);
  for (auto& fault : delivery_faults(plan, iteration)) faults.push_back(std::move(fault));
  // Ends that do not exist would make every later finding noise.
  const bool bad_ends = std::any_of(faults.begin(), faults.end(), [](const Fault& fault) {
    return fault.kind == FaultKind::unknown;
  });
  if (bad_ends) return faults;
  // As would rows that pass through the wrong device.
  if (auto routes = route_faults(plan, iteration); !routes.empty()) {
    for (auto& fault : routes) faults.push_back(std::move(fault));
    return faults;
  }
  for (auto& fault : ListCheck(plan, iteration).faults()) faults.push_back(std::move(fault));
  for (auto& fault : parameter_faults(plan, iteration)) faults.push_back(std::move(fault));
  return faults.empty() ? call_order_faults(plan, iteration) : faults;
}

std::string describe(const ParallelPlan& plan, const Action& action) {
  std::string text(to_string(action.kind));
  const bool updates = action.kind == ActionKind::optimizer_step || moves_state(action.kind);
  if (updates && !action.stage.valid()) text += " on standby";
  if (action.stage.valid()) {
    text += " stage " + std::to_string(action.stage.value);
    if (action.stage.index() < plan.stages.size() && !plan.at(action.stage).runs.empty()) {
      const auto& run = plan.at(action.stage).runs.front();
      text += " (" + plan.model.at(run.module).name + " " + std::to_string(run.layers.begin) + "-" +
              std::to_string(run.layers.end) + ")";
    }
  }
  if (action.microbatch.valid()) text += " microbatch " + std::to_string(action.microbatch.value);
  if (action.part.value > 0) text += " part " + std::to_string(action.part.value);
  if (action.message.valid()) text += " message " + std::to_string(action.message.value);
  if (action.delivery.valid()) text += " delivery " + std::to_string(action.delivery.value);
  if (action.group.valid())
    text += " group " + (action.group.index() < plan.groups.size()
                             ? plan.groups[action.group.index()].name
                             : std::to_string(action.group.value));
  return text;
}

}  // namespace troupe::scheduler
