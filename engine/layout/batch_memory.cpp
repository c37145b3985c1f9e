#include "engine/layout/batch_memory.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "balancer/loads/sum_rounding.hpp"
#include "balancer/loads/workload.hpp"
#include "engine/iteration/dealt_batch.hpp"
#include "engine/iteration/exchange_count.hpp"
#include "engine/iteration/microbatching.hpp"
#include "engine/iteration/pipeline_speeds.hpp"
#include "scheduler/cost/sample_costs.hpp"
#include "scheduler/iteration/redistribution.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/layout/layout_request.hpp"
#include "scheduler/simulate/llm_cap.hpp"
#include "scheduler/simulate/memory_bounds.hpp"
#include "scheduler/simulate/predicted_costs.hpp"

namespace troupe::engine {

namespace {

using Samples = std::vector<std::int32_t>;

/// A batch on a layout, however it is dealt.
struct BatchThere {
  const ParallelPlan& plan;
  const MicrobatchingOptions& options;
  const std::vector<balancer::Workload>& weights;  ///< Of its samples.
  scheduler::SimulationCosts costs;                ///< With rows that arrive.
  std::vector<double> rooms;                       ///< Per stage (`scheduler::microbatch_rooms`).
};

Error refused(std::string message) {
  return {Errc::infeasible, std::move(message), "cluster.device_memory_gib",
          "raise it or train.microbatches, or give the job more nodes"};
}

/// The least values that as many of them as one of `groups` groups must have come to.
/// REQUIRES: values.
double sum_of_least(std::vector<double> values, std::int64_t groups) {
  const auto together = (std::ssize(values) + groups - 1) / groups;
  const auto end = values.begin() + together;
  std::nth_element(values.begin(), end - 1, values.end());
  return std::accumulate(values.begin(), end, 0.0);
}

/// The llm's microbatches of a pipeline, whose replicas share these samples. `summed`: what its
/// stages keep of all of them. `rooms`: per stage, with as many in flight as stages follow.
Status check_llm(const BatchThere& batch, PipelineId pipeline, const Samples& samples,
                 const scheduler::SimulationCosts& summed, const std::vector<double>& rooms) {
  std::vector<double> llm_ms;
  for (const std::int32_t sample : samples)
    llm_ms.push_back(batch.weights[static_cast<std::size_t>(sample)].llm_ms);
  const double all_ms = std::accumulate(llm_ms.begin(), llm_ms.end(), 0.0);
  const std::int64_t microbatches = batch.options.microbatches;
  std::int64_t replicas = 0;
  double largest_ms = 0, together_ms = 0;  // That have room.
  for (const ReplicaId replica : batch.plan.at(pipeline).replicas) {
    if (!batch.plan.is_llm(replica)) continue;
    const auto cap = scheduler::llm_cap_ms(batch.plan, summed, rooms, replica, samples, all_ms);
    if (!cap) return Done{};
    ++replicas;
    largest_ms = std::max(largest_ms, *cap);
    together_ms += static_cast<double>(microbatches) * *cap;
  }
  const std::string who = "pipeline " + std::to_string(pipeline.value);
  if (largest_ms <= 0) return refused(who + " has no room for activations beside state");
  const double times = std::max(
      all_ms / together_ms, sum_of_least(std::move(llm_ms), replicas * microbatches) / largest_ms);
  if (times <= 1 + balancer::kSumRounding) return Done{};
  return refused("the llm's microbatches of " + who + " would take at least " +
                 std::to_string(std::lround(100 * times)) +
                 " % of the room that its devices have for them beside state and encoders");
}

/// `kept`: per stage, of its largest microbatch. Outside phases those of all stages of a device are
/// there at once.
Status check_devices(const BatchThere& batch, const std::vector<double>& kept) {
  const ParallelPlan& plan = batch.plan;
  const bool are_apart = scheduler::has_phases(batch.options.schedule);
  std::vector<double> wanted(plan.devices.size()), room(plan.devices.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const DeviceId device : plan.stages[s].devices) {
      double& own = wanted[device.index()];
      own = are_apart ? std::max(own, kept[s]) : own + kept[s];
      room[device.index()] = std::max(room[device.index()], batch.rooms[s]);
    }
  for (std::size_t d = 0; d < wanted.size(); ++d) {
    if (wanted[d] <= room[d] * (1 + balancer::kSumRounding)) continue;
    const DeviceSlot& slot = plan.devices[d];
    return refused("microbatches would keep at least " + scheduler::byte_text(wanted[d]) +
                   " of activations on device " + std::to_string(slot.local_index) + " of node " +
                   std::to_string(slot.node.value) + ", where state leaves " +
                   scheduler::byte_text(room[d]));
  }
  return Done{};
}

/// Whether this stage trains all samples of its pipeline that have anything for it: which of
/// several encoders has what is not known, nor where encoders share a batch out.
bool has_all(const BatchThere& batch, PipelineId pipeline, StageId stage) {
  const bool is_whole = batch.plan.at(pipeline).replicas.size() == batch.plan.module_groups.size();
  return is_whole && (batch.plan.is_llm(stage) || batch.options.exchange == "off");
}

/// Per stage the bytes that it keeps of all samples of its pipeline; 0 where nobody asks: of
/// encoders that may not have them all.
std::vector<double> bytes_of_all(const BatchThere& batch, const std::vector<Samples>& pipelines) {
  std::vector<double> bytes(batch.plan.stages.size());
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    if (pipelines[p].empty()) continue;
    for (const StageId stage : batch.plan.stages_of(PipelineId{p}))
      if (batch.plan.is_llm(stage) || has_all(batch, PipelineId{p}, stage))
        bytes[stage.index()] = batch.costs.activation_bytes(stage, pipelines[p]);
  }
  return bytes;
}

/// All of that, of samples as they are dealt to pipelines.
Status check_dealt(const BatchThere& batch, const std::vector<Samples>& pipelines) {
  const ParallelPlan& plan = batch.plan;
  const auto bytes = bytes_of_all(batch, pipelines);
  scheduler::SimulationCosts summed;  // All that follows asks for all samples of a pipeline.
  summed.activation_bytes = [&bytes](StageId stage, const Samples&) {
    return bytes[stage.index()];
  };
  summed.offloaded_bytes = batch.costs.offloaded_bytes;
  std::vector<double> by_encoders;
  if (batch.options.exchange == "off")
    by_encoders = scheduler::kept_by_encoders(plan, summed, pipelines, batch.options.microbatches);
  const auto rooms = scheduler::rooms_in_flight(plan, batch.rooms, by_encoders);
  const auto microbatches = static_cast<double>(batch.options.microbatches);
  std::vector<double> kept(plan.stages.size());
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    const PipelineId pipeline{p};
    if (pipelines[p].empty()) continue;
    if (auto fits = check_llm(batch, pipeline, pipelines[p], summed, rooms); !fits.ok())
      return fits;
    for (const StageId stage : plan.stages_of(pipeline))
      if (has_all(batch, pipeline, stage))
        kept[stage.index()] = bytes[stage.index()] / microbatches;
  }
  // Who says how many are in flight is not bound by memory.
  return batch.options.max_in_flight > 0 ? Status(Done{}) : check_devices(batch, kept);
}

}  // namespace

Status check_batch_memory(const JobSetup& setup, const ParallelPlan& plan,
                          std::vector<SampleShape> samples) {
  const auto& known = setup.costs;
  if (!known || !(known->device_memory > Bytes{}) || samples.empty()) return Done{};
  const MicrobatchingOptions options = microbatching_options(setup);
  const auto deal = [&](DealtBatch batch, const std::string& exchange) {
    MicrobatchingOptions own = options;
    own.exchange = exchange;
    return Microbatching(plan, std::move(own), known)
        .deal(std::move(batch), PipelineSpeeds(plan.pipelines.size()));
  };
  // Plans may have an exchange or none, and be dealt by either.
  const bool is_open =
      options.exchange == "auto" && plan.pipelines.size() > 1 && can_exchange(plan);
  auto dealt = deal({1, 0, std::move(samples)}, is_open ? "off" : options.exchange);
  if (!dealt.ok()) return std::move(dealt).error();
  DealtBatch& batch = dealt.value();
  const auto sums = batch.sums->of(plan);
  if (!sums.ok()) return sums.error();
  const auto flow = std::make_shared<const scheduler::RowFlow>(plan.model, batch.samples);
  auto costs = scheduler::predicted_costs(plan, sums.value(), known->options);
  if (options.offload_encoders) costs = scheduler::with_offloading(std::move(costs), plan, flow);
  costs = scheduler::with_arriving_rows(std::move(costs), plan, flow);
  auto rooms = scheduler::microbatch_rooms(plan, costs, known->device_memory);
  const BatchThere there{plan, options, batch.weights, std::move(costs), std::move(rooms)};
  Status fits = check_dealt(there, batch.pipelines);
  if (fits.ok() || !is_open) return fits;
  // Samples weigh the same, so that their sums are not made again.
  auto by_phase = deal({1, 0, std::move(batch.samples), {}, {}, batch.sums}, "per-phase");
  if (!by_phase.ok()) return std::move(by_phase).error();
  return check_dealt(there, by_phase.value().pipelines);
}

}  // namespace troupe::engine
