#include "engine/execution/plan_slices.hpp"

#include <algorithm>

#include "engine/execution/packing.hpp"
#include "runtime/vocabulary/index.hpp"

namespace troupe::engine {

namespace {

/// Calls `visit` with each list of units.
template <class Visit>
void visit_units(IterationPlan& slice, const Visit& visit) {
  for (MicrobatchList& list : slice.microbatches)
    for (Microbatch& microbatch : list)
      for (Part& part : microbatch.parts) visit(part.samples);
  for (Message& message : slice.messages) visit(message.samples);
  for (Delivery& delivery : slice.deliveries) visit(delivery.samples);
}

/// Null: the unit is a whole sample.
const SamplePiece* piece_of(const IterationPlan& whole, std::int32_t unit) {
  return at(unit) < whole.samples.size() ? nullptr : &whole.pieces[at(unit) - whole.samples.size()];
}

/// The units that a slice names, and the samples of its pieces: ascending, each once.
std::vector<std::int32_t> named_units(const IterationPlan& whole, IterationPlan& slice) {
  std::vector<std::int32_t> units;
  visit_units(slice, [&](const std::vector<std::int32_t>& list) {
    for (const std::int32_t unit : list) {
      units.push_back(unit);
      if (const SamplePiece* piece = piece_of(whole, unit)) units.push_back(piece->sample);
    }
  });
  std::sort(units.begin(), units.end());
  units.erase(std::unique(units.begin(), units.end()), units.end());
  return units;
}

/// Gives a slice the samples and pieces that it names, and their numbers to its lists. Samples
/// stand before pieces in the whole plan too, so that a unit's number is its place among its like.
void number_anew(const IterationPlan& whole, IterationPlan& slice) {
  const auto units = named_units(whole, slice);
  const auto number_of = [&](std::int32_t unit) {
    return static_cast<std::int32_t>(std::lower_bound(units.begin(), units.end(), unit) -
                                     units.begin());
  };
  for (const std::int32_t unit : units)
    if (const SamplePiece* piece = piece_of(whole, unit))
      slice.pieces.push_back({number_of(piece->sample), piece->module, piece->first, piece->count});
    else
      slice.samples.push_back(whole.samples[at(unit)]);
  visit_units(slice, [&](std::vector<std::int32_t>& list) {
    for (std::int32_t& unit : list) unit = number_of(unit);
  });
}

}  // namespace

PlanSlices::PlanSlices(const IterationPlan& iteration, const ParallelPlan& plan)
    : iteration_(iteration) {
  // Both ends of a message may lie on one node.
  const auto note = [this](std::vector<std::size_t> Share::*list, NodeId node, std::size_t place) {
    auto& places = shares_[node].*list;
    if (places.empty() || places.back() != place) places.push_back(place);
  };
  const auto node_of = [&](DeviceId device) { return plan.devices[device.index()].node; };
  for (std::size_t d = 0; d < iteration.actions.size(); ++d)
    note(&Share::devices, node_of(DeviceId{d}), d);
  for (std::size_t r = 0; r < iteration.microbatches.size(); ++r)
    for (const StageId stage : plan.replicas[r].stages)
      note(&Share::replicas, plan.node_of(stage), r);
  for (std::size_t m = 0; m < iteration.messages.size(); ++m) {
    const Message& message = iteration.messages[m];
    note(&Share::messages, plan.node_of(message.source.stage), m);
    note(&Share::messages, plan.node_of(message.destination.stage), m);
    if (message.relay.valid()) note(&Share::messages, node_of(message.relay), m);
  }
  for (std::size_t i = 0; i < iteration.deliveries.size(); ++i) {
    const Delivery& delivery = iteration.deliveries[i];
    note(&Share::deliveries, node_of(delivery.from), i);
    note(&Share::deliveries, plan.node_of(delivery.destination.stage), i);
  }
  for (std::size_t m = 0; m < plan.model.modules.size(); ++m)
    segments_.push_back(segment_count(plan.model, ModuleId{m}, iteration.samples));
}

void PlanSlices::copy(const Share& share, IterationPlan& slice) const {
  for (const std::size_t d : share.devices) slice.actions[d] = iteration_.actions[d];
  for (const std::size_t r : share.replicas) slice.microbatches[r] = iteration_.microbatches[r];
  for (const std::size_t m : share.messages) {
    slice.messages.push_back(iteration_.messages[m]);
    slice.message_ids.push_back(iteration_.id_of(m));
  }
  for (const std::size_t i : share.deliveries) {
    slice.deliveries.push_back(iteration_.deliveries[i]);
    slice.delivery_ids.emplace_back(i);
  }
}

IterationPlan PlanSlices::of(NodeId node) const {
  IterationPlan slice;
  slice.step = iteration_.step;
  slice.epoch_number = iteration_.epoch_number;
  slice.trained_tokens = iteration_.trained_tokens;
  slice.segments = segments_;
  slice.max_in_flight = iteration_.max_in_flight;
  slice.boundaries = iteration_.boundaries;
  slice.actions.resize(iteration_.actions.size());
  slice.microbatches.resize(iteration_.microbatches.size());
  if (const auto share = shares_.find(node); share != shares_.end()) copy(share->second, slice);
  number_anew(iteration_, slice);
  return slice;
}

}  // namespace troupe::engine
