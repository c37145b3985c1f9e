#include "scheduler/check/parameter_check.hpp"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "runtime/vocabulary/host_state.hpp"
#include "scheduler/check/check_plan.hpp"

namespace troupe::scheduler {

namespace {

/// One list, and where the parameters of its stages are.
class ListWalk {
 public:
  ListWalk(const ParallelPlan& plan, DeviceId device, std::set<StageId> movable,
           std::vector<Fault>& faults)
      : plan_(plan), device_(device), here_(std::move(movable)), faults_(faults) {}

  void pass(const Action& action) {
    if (moves_parameters(action.kind)) return move(action);
    if (action.kind == ActionKind::commit) return commit();
    if (!action.microbatch.valid() || moves_activations(action.kind)) return;
    if (away_.contains(action.stage))
      report(FaultKind::dependency, action, "its parameters are in host memory");
    // A stage that the layout does not have is reported elsewhere.
    if (here_.empty() || !action.stage.valid() || action.stage.index() >= plan_.stages.size() ||
        parameters_in_host(plan_, action.stage))
      return;
    for (const StageId stage : here_)
      if (told_.insert(stage).second)
        report(
            FaultKind::memory, action,
            "parameters of stage " + std::to_string(stage.value) + " are on the device beside it");
  }

 private:
  void report(FaultKind kind, const Action& action, std::string why) {
    faults_.push_back({kind, device_, describe(plan_, action), std::move(why)});
  }

  void move(const Action& action) {
    if (committed_) return report(FaultKind::dependency, action, "it stands behind commit");
    const bool leaves = action.kind == ActionKind::evict_parameters;
    std::set<StageId>& from = leaves ? here_ : away_;
    std::set<StageId>& to = leaves ? away_ : here_;
    if (from.erase(action.stage) > 0)
      to.insert(action.stage);
    else if (to.contains(action.stage))
      report(FaultKind::duplicate, action,
             leaves ? "they have left already" : "they are there already");
    else
      report(FaultKind::unknown, action, "parameters of this stage stay where they are");
  }

  void commit() {
    committed_ = true;
    Action fetch;
    fetch.kind = ActionKind::fetch_parameters;
    for (const StageId stage : away_) {
      fetch.stage = stage;
      report(FaultKind::missing, fetch, "they are in host memory at commit");
    }
  }

  const ParallelPlan& plan_;
  DeviceId device_;
  std::set<StageId> here_, away_;
  std::set<StageId> told_;  // Reported once to be in the way.
  bool committed_ = false;
  std::vector<Fault>& faults_;
};

}  // namespace

std::vector<Fault> parameter_faults(const ParallelPlan& plan, const IterationPlan& iteration) {
  std::map<DeviceId, std::set<StageId>> movable;
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    if (parameters_in_host(plan, StageId{s}))
      for (const DeviceId lead : plan.leads_of(StageId{s})) movable[lead].insert(StageId{s});
  std::vector<Fault> faults;
  for (std::size_t d = 0; d < iteration.actions.size(); ++d) {
    ListWalk walk(plan, DeviceId{d}, movable[DeviceId{d}], faults);
    for (const Action& action : iteration.actions[d]) walk.pass(action);
  }
  return faults;
}

}  // namespace troupe::scheduler
