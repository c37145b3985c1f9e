#include "engine/layout/tight_sample.hpp"

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/cost/sample_costs.hpp"
#include "scheduler/iteration/redistribution.hpp"
#include "scheduler/layout/layout_request.hpp"
#include "scheduler/simulate/llm_cap.hpp"
#include "scheduler/simulate/memory_bounds.hpp"
#include "scheduler/simulate/predicted_costs.hpp"

namespace troupe::engine {

namespace {

/// What samples keep on a layout, and the rooms of its stages.
struct Rooms {
  const ParallelPlan& plan;
  scheduler::SimulationCosts costs;  ///< With rows that arrive.
  std::vector<double> of_llm;        ///< Per stage, with as many in flight as stages follow.
  std::vector<double> of_encoders;   ///< Per stage.
};

/// Stages that all samples of an llm replica go through. `is_off`: encoders work for their own
/// pipeline alone.
std::vector<StageId> stages_behind(const ParallelPlan& plan, ReplicaId llm, bool is_off) {
  const PipelineId pipeline = plan.at(llm).pipeline;
  const bool is_whole = plan.at(pipeline).replicas.size() == plan.module_groups.size();
  return is_off && is_whole ? plan.stages_of(pipeline) : plan.at(llm).stages;
}

/// Where a sample fills most of the room on its way through these stages.
TightSample tightest_place(const Rooms& rooms, std::size_t sample,
                           const std::vector<StageId>& stages) {
  TightSample tightest;
  tightest.sample = sample;
  for (const StageId stage : stages) {
    const bool is_llm = rooms.plan.is_llm(stage);
    TightSample here;
    here.sample = sample;
    here.bytes = rooms.costs.activation_bytes(stage, {static_cast<std::int32_t>(sample)});
    here.room = (is_llm ? rooms.of_llm : rooms.of_encoders)[stage.index()];
    here.device = rooms.plan.devices[rooms.plan.at(stage).devices.front().index()];
    if (here.filled() > tightest.filled()) tightest = here;
  }
  return tightest;
}

}  // namespace

double TightSample::filled() const {
  if (!(bytes > 0)) return 0;
  return room > 0 ? bytes / room : std::numeric_limits<double>::infinity();
}

std::optional<TightSample> tightest_sample(const JobSetup& setup, const ParallelPlan& plan,
                                           std::span<const SampleShape> samples) {
  const auto& known = setup.costs;
  if (!known || !(known->device_memory > Bytes{}) || samples.empty()) return std::nullopt;
  const auto sums = scheduler::SampleSums(known->model, samples).of(plan);
  if (!sums.ok()) return std::nullopt;
  const auto flow = std::make_shared<const scheduler::RowFlow>(plan.model, samples);
  Rooms rooms{plan,
              scheduler::with_arriving_rows(
                  scheduler::predicted_costs(plan, sums.value(), known->options), plan, flow),
              {},
              {}};
  rooms.of_llm = scheduler::rooms_in_flight(plan, rooms.costs, known->device_memory);
  rooms.of_encoders = scheduler::microbatch_rooms(plan, rooms.costs, known->device_memory);
  TightSample tightest;
  for (std::size_t sample = 0; sample < samples.size(); ++sample) {
    TightSample best;
    bool has_place = false;
    for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
      if (!plan.is_llm(ReplicaId{r})) continue;
      const auto stages = stages_behind(plan, ReplicaId{r}, setup.job.balancer.exchange == "off");
      const TightSample place = tightest_place(rooms, sample, stages);
      if (!has_place || place.filled() < best.filled()) best = place;
      has_place = true;
    }
    if (best.filled() > tightest.filled()) tightest = best;
  }
  if (!(tightest.filled() > 0)) return std::nullopt;
  return tightest;
}

Error with_tight_sample(Error why, const JobSetup& setup, const ParallelPlan& plan,
                        std::span<const SampleShape> samples) {
  const auto tight = tightest_sample(setup, plan, samples);
  if (!tight) return why;
  const SampleShape& sample = samples[tight->sample];
  const std::string who = "sample '" + sample.id + "'";
  why.message += "; of the batch's samples '" + sample.id + "' (" +
                 std::to_string(sample.llm_tokens) + " tokens) has least room: alone it keeps " +
                 scheduler::byte_text(tight->bytes) + " of activations on device " +
                 std::to_string(tight->device.local_index) + " of node " +
                 std::to_string(tight->device.node.value) + ", where state leaves " +
                 scheduler::byte_text(tight->room) + " for a microbatch";
  if (tight->filled() > 1)
    why.fix += (why.fix.empty() ? "" : "; ") + who +
               " is too large in any number of microbatches: data.max_seq_len = " +
               std::to_string(sample.llm_tokens - 1) + " leaves it out" +
               (setup.job.train.recompute ? "" : ", train.recompute = true has it keep less");
  return why;
}

}  // namespace troupe::engine
