// Executes an `IterationPlan` on paper: how long it takes, who waits, how much memory it needs.
//
// Pure and seeded. It runs the very lists that the engine runs, reductions, commit and optimizer
// included.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/cost/profile.hpp"
#include "scheduler/iteration/iteration_graph.hpp"
#include "scheduler/iteration/rank_links.hpp"

namespace troupe::scheduler {

/// Bytes of a stage's parameters, on one of its ranks.
struct StageParameters {
  double all = 0;
  double trained = 0;  ///< Of these, what updates change.
};

/// Times and sizes. Functions must be pure; a missing one counts as zero.
struct SimulationCosts {
  TaskCost task_ms;
  /// Bytes of a part, from its forward to its last backward; then messages for it count as well.
  std::function<double(StageId stage, const std::vector<std::int32_t>& samples)> activation_bytes;
  /// Of these, what `offload` takes to host memory and `fetch` brings back, over `host`.
  std::function<double(StageId stage, const std::vector<std::int32_t>& samples)> offloaded_bytes;
  /// Parameters, gradients, optimizer; of groups whose moments are in host memory without these.
  std::function<double(StageId stage)> state_bytes;
  std::function<double(StageId stage)> optimizer_ms;  ///< Of one `optimizer_step`, of all others.
  /// The same of what a device keeps and updates without a stage.
  std::function<double(DeviceId device)> standby_bytes, standby_optimizer_ms;
  /// Of one group whose moments are in host memory, on a rank of a stage or, without one, at a
  /// standby holder: these and its master in bytes, and its update.
  std::function<double(GroupId group, StageId stage)> moment_bytes, group_optimizer_ms;
  /// Of a stage whose parameters are in host memory while the llm computes. What no update has
  /// changed since it left last leaves again in no time.
  std::function<StageParameters(StageId stage)> parameter_bytes;
  double bytes_per_element = 4;         ///< Of rows between stages, and of their gradients.
  double summed_bytes_per_element = 4;  ///< Of parameters' gradients, sent and added up.
  double reduce_gigabytes_per_s = 0;    ///< Summing gradients of one holder; 0: no time.
  LinkSpeed device;                     ///< Between stages on one device.
  LinkSpeed node;                       ///< Between devices of one node.
  LinkSpeed network;                    ///< Between nodes; commit takes two of its latencies.
  LinkSpeed host;                       ///< Between a device and its host's memory.

  /// Of moving so many bytes to host memory, or back.
  double host_ms(double bytes) const {
    return host.latency_ms + (host.gigabytes_per_s > 0 ? bytes / (host.gigabytes_per_s * 1e6) : 0);
  }
  /// Of an `optimizer_step` on a device.
  double update_ms(const Action& action, DeviceId device) const {
    if (action.group.valid())
      return group_optimizer_ms ? group_optimizer_ms(action.group, action.stage) : 0;
    if (!action.stage.valid()) return standby_optimizer_ms ? standby_optimizer_ms(device) : 0;
    return optimizer_ms ? optimizer_ms(action.stage) : 0;
  }
  const LinkSpeed& link(LinkClass kind) const {
    return kind == LinkClass::device ? device : kind == LinkClass::node ? node : network;
  }
};

struct SimulationOptions {
  double noise = 0;        ///< Standard deviation of log(time of a compute action); mean kept.
  std::uint64_t seed = 0;  ///< Of the noise.
  /// A node that stops: what would end later on it never ends.
  struct Failure {
    NodeId node;
    double at_ms = 0;
  };
  std::vector<Failure> failures;
  bool record_timeline = false;  ///< Fill `SimulatedStep::events`.
};

/// One action that took place. Waiting is the gap before it.
struct SimulatedEvent {
  DeviceId device;
  std::int32_t index = 0;  ///< Into the device's list.
  double begin_ms = 0;     ///< When its inputs were there and the device free.
  double end_ms = 0;
};

struct SimulatedStep {
  bool completed = true;         ///< False: a failure kept some action from its end.
  double step_ms = 0;            ///< Last end on any device; of a lost step, until all stood still.
  double bubble = 0;             ///< Idle share of device time: 1 - compute / (devices x step_ms).
  std::vector<double> stage_ms;  ///< Per stage: compute, optimizer included.
  std::vector<double> stage_bubble;           ///< Per stage: idle share of its device.
  std::vector<double> peak_memory_bytes;      ///< Per device: state, activations, messages.
  std::vector<double> peak_activation_bytes;  ///< Per device: of activations and messages alone.
  std::vector<double> peak_host_bytes;  ///< Per device: activations, moments, parameters there.
  std::vector<std::int64_t> done;       ///< Per device: actions that ended.
  std::vector<SimulatedEvent> events;   ///< By device, in order; empty unless recorded.
};

/// Runs the plan.
///
/// Cost: O(actions).
///
/// Errors:
/// - invalid_argument: the plan has a list for another number of devices than the layout, or an
///   action that names nothing that exists; a speed, latency or noise that is negative or not
///   finite. `check_plan.hpp` says more about a plan that is wrong.
/// - internal: without a failure the lists came to a stand (a deadlock; see `check`).
Result<SimulatedStep> simulate(const ParallelPlan& plan, const IterationPlan& iteration,
                               const SimulationCosts& costs, const SimulationOptions& options = {});

}  // namespace troupe::scheduler
