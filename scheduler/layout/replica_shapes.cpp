#include "scheduler/layout/replica_shapes.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/layout/layout_estimate.hpp"
#include "scheduler/layout/replica_candidates.hpp"

namespace troupe::scheduler {

namespace {

constexpr std::size_t kSharesCut = 64;  ///< Shares of one number of llm replicas that may be cut.

/// Bytes of each stage of a replica: state, and one microbatch.
struct StageBytes {
  double state = 0, microbatch = 0;
};

std::vector<StageBytes> stage_bytes(const PipelineShape& shape, const LayerWeights& weights) {
  const Track& track = shape.tracks.front();
  std::vector<StageBytes> stages(at(track.segments()));
  for (std::int32_t s = 0; s < track.segments(); ++s)
    for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l) {
      stages[at(s)].state += weights.state_bytes[track.layers[at(l)]];
      stages[at(s)].microbatch += weights.activation_bytes[track.layers[at(l)]];
    }
  return stages;
}

/// What the fullest stage of a replica holds with so many microbatches in flight.
double fullest_bytes(const PipelineShape& shape, const LayerWeights& weights,
                     double microbatches_max, double behind) {
  const auto stages = stage_bytes(shape, weights);
  double most = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const double in_flight =
        std::min(microbatches_max, static_cast<double>(stages.size() - s) + behind);
    most = std::max(most, stages[s].state + in_flight * stages[s].microbatch);
  }
  return most;
}

}  // namespace

PhaseMemory held_by_replicas(const LayoutCandidate& candidate, ModuleId llm,
                             std::int64_t microbatches, Bytes device_memory) {
  std::vector<std::vector<PhaseStage>> stages;
  for (const PipelineShape& shape : candidate.shapes)
    stages.push_back(phase_stages(shape.tracks.front(), *candidate.weights, llm));
  const CopyPlaces places = copy_places(candidate);
  PhaseMemory held(places.groups * places.per_group, static_cast<double>(device_memory.count()));
  const double all = static_cast<double>(microbatches) * candidate.numbers.back();
  const auto share_of = [all](std::int32_t number) { return std::ceil(all / number); };
  double encoded = 0;
  for (std::size_t g = 0; g + 1 < candidate.numbers.size(); ++g)
    encoded = std::max(encoded, share_of(candidate.numbers[g]));
  std::size_t copy = 0;
  for (const std::int32_t number : candidate.numbers) {
    const bool is_llm = copy >= places.first_llm;
    const double own = share_of(number);
    for (std::int32_t r = 0; r < number; ++r, ++copy)
      for (const PhaseStage& stage : stages[candidate.shape_of[copy]])
        for (std::int32_t part = 0; part < (is_llm ? places.per_group : 1); ++part)
          held.add(places.place_of(copy, stage.segment) + part, stage, own, encoded);
  }
  return held;
}

ReplicaShapes::ReplicaShapes(const AutoLayoutRequest& request,
                             const std::vector<Parallelism>& parallelisms,
                             const std::vector<std::vector<ModuleId>>& groups,
                             std::int32_t llm_replicas, std::shared_ptr<const LayerWeights> weights,
                             Sharing sharing)
    : request_(request),
      parallelisms_(parallelisms),
      groups_(groups),
      weights_(std::move(weights)),
      shapes_(request.model->graph(), *weights_),
      phases_(has_phases(request.schedule)) {
  const auto own = std::max<std::int64_t>(request.global_batch / llm_replicas, 1);
  share_.microbatches = std::min(request.microbatches, own);
  share_.llm_replicas = llm_replicas;
  share_.devices = request.cluster.devices();
  share_.may_idle = request.planned_only;
  share_.colocated = sharing == Sharing::colocated;
  share_.device_memory = memory();
  share_.count = kSharesCut;
  share_.reduction_ms = [this](std::int32_t replicas, std::int32_t devices, double bytes) {
    return bytes * reduction_ms_per_byte(request_, replicas, devices);
  };
  for (const auto& modules : groups) share_.groups.push_back(load_of(modules));
}

std::vector<LayoutCandidate> ReplicaShapes::best(std::size_t count, double worst_ms) {
  std::vector<LayoutCandidate> made;
  share_.bound_max_ms = worst_ms;
  const auto shares = share_devices(share_);
  if (shares.empty() && memory() > 0) remember_least();
  for (const DeviceShare& share : shares) {
    if (made.size() == count) break;
    shared_ = true;
    if (auto candidate = cut(share.groups)) made.push_back(std::move(*candidate));
  }
  return made;
}

/// What devices would have to hold at least, were it not for their memory.
void ReplicaShapes::remember_least() {
  ShareRequest roomy = share_;
  roomy.device_memory = 0;
  for (const DeviceShare& share : share_devices(roomy)) {
    double fullest = 0;
    for (std::size_t g = 0; g < share.groups.size(); ++g)
      fullest = std::max({fullest, share_.groups[g].bytes / share.groups[g].stages,
                          share_.groups[g].largest_layer_bytes});
    if (fullest > memory()) least_bytes_ = std::min(least_bytes_, fullest);
  }
}

GroupLoad ReplicaShapes::load_of(const std::vector<ModuleId>& modules) const {
  GroupLoad load;
  load.layers = 0;
  load.width = parallelisms_[modules.front().index()].ranks();
  load.pinned = pinned_number(request_, modules);
  for (std::size_t i = 0; i < weights_->layers.size(); ++i) {
    const ModuleId module = weights_->layers[i].module;
    if (std::find(modules.begin(), modules.end(), module) == modules.end()) continue;
    const double bytes = weights_->state_bytes[i] + weights_->activation_bytes[i];
    ++load.layers;
    load.work_ms += weights_->work_ms[i];
    load.largest_layer_ms = std::max(load.largest_layer_ms, weights_->work_ms[i]);
    load.bytes += bytes;
    load.largest_layer_bytes = std::max(load.largest_layer_bytes, bytes);
    if (!request_.model->graph().at(module).freeze) load.trained_bytes += weights_->state_bytes[i];
  }
  return load;
}

GroupTimes ReplicaShapes::times_of(const PipelineShape& shape) const {
  GroupTimes times{shape.slowest_ms, 0};
  const Track& track = shape.tracks.front();
  for (std::int32_t s = 0; s < track.segments(); ++s) {
    double trained = 0;
    for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l) {
      const auto layer = track.layers[at(l)];
      if (!request_.model->graph().at(weights_->layers[layer].module).freeze)
        trained += weights_->state_bytes[layer];
    }
    times.trained_bytes = std::max(times.trained_bytes, trained);
  }
  return times;
}

/// Adds the shapes and copies of one group; false where it does not keep the pins or fit.
bool ReplicaShapes::add_group(std::size_t g, const std::vector<GroupShare>& shares,
                              LayoutCandidate& candidate, std::vector<GroupTimes>& times) {
  const GroupShare& share = shares[g];
  const bool llm = g + 1 == shares.size();
  // Behind an encoder lie the stages of as many llm replicas as it feeds.
  const double fed = llm ? 0 : 1.0 * share_.llm_replicas / share.replicas;
  const double behind = fed * shares.back().stages;
  const double microbatches = static_cast<double>(share_.microbatches) * (llm ? 1 : fed);
  for (std::int32_t more = share.longer > 0 ? 1 : 0; more >= 0; --more) {
    auto shape = shapes_.replica(groups_[g], share.stages + more);
    if (!keeps_pins(request_, shape, *weights_)) return false;
    const double bytes = fullest_bytes(shape, *weights_, 1, behind);
    if (memory() > 0 && bytes > memory()) {
      least_bytes_ = std::min(least_bytes_, bytes);
      over_memory_ = true;
    }
    // Phases go over as few microbatches at a time as fit.
    candidate.may_fit =
        candidate.may_fit &&
        (memory() == 0 || phases_ ||
         fullest_bytes(shape, *weights_, std::max(1.0, microbatches), behind) <= memory());
    if (more == 0) times.push_back(times_of(shape));
    const auto copies = more > 0 ? share.longer : share.replicas - share.longer;
    candidate.shape_of.insert(candidate.shape_of.end(), at(copies), candidate.shapes.size());
    candidate.shapes.push_back(std::move(shape));
  }
  candidate.numbers.push_back(share.replicas);
  return true;
}

/// Adds to the estimate that encoders and llm fill and drain anew for each window that memory has
/// room for, and that it may hold the llm back; false where not even one microbatch of each stage
/// fits.
bool ReplicaShapes::fits_in_phases(LayoutCandidate& candidate,
                                   const std::vector<GroupTimes>& times) {
  if (!phases_ || memory() == 0) return true;
  const PhaseMemory held = held_by_replicas(candidate, request_.model->graph().llm(),
                                            share_.microbatches, request_.device_memory);
  if (held.least_bytes() > memory()) {
    least_bytes_ = std::min(least_bytes_, held.least_bytes());
    return false;
  }
  candidate.may_fit = held.wanted_bytes() <= memory();
  double refill_ms = 0;
  for (std::size_t g = 0; g < times.size(); ++g)
    refill_ms += std::max(0.0, share_.groups[g].work_ms - times[g].slowest_ms);
  const auto [windows, held_back] = held.pace();
  const double behind_first = std::max(0.0, static_cast<double>(share_.microbatches) - windows);
  candidate.estimate_ms +=
      (windows - 1) * refill_ms + (held_back - 1) * behind_first * times.back().slowest_ms;
  return true;
}

std::optional<LayoutCandidate> ReplicaShapes::cut(const std::vector<GroupShare>& shares) {
  LayoutCandidate candidate{parallelisms_, {}, {}, weights_};
  candidate.module_groups = groups_;
  candidate.colocated = share_.colocated;
  std::vector<GroupTimes> times;
  over_memory_ = false;
  for (std::size_t g = 0; g < shares.size(); ++g)
    if (!add_group(g, shares, candidate, times)) return std::nullopt;
  pins_kept_ = true;
  if (over_memory_) return std::nullopt;
  candidate.estimate_ms = shared_step_ms(share_, shares, times);
  if (!fits_in_phases(candidate, times)) return std::nullopt;
  if (auto groups = device_groups(request_, candidate); !groups.ok()) {
    place_error_ = std::move(groups).error();
    return std::nullopt;
  }
  return candidate;
}

}  // namespace troupe::scheduler
