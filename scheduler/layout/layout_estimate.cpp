#include "scheduler/layout/layout_estimate.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/cost/nccl_call.hpp"
#include "scheduler/cost/state_bytes.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/simulate/predicted_costs.hpp"

namespace troupe::scheduler {

namespace {

/// The largest sum over the devices of a shape; `bytes_of(track, segment, layer)` is one layer's.
template <class BytesOf>
double fullest(const PipelineShape& shape, BytesOf bytes_of) {
  std::vector<double> bytes(at(shape.devices));
  for (const Track& track : shape.tracks)
    for (std::int32_t s = 0; s < track.segments(); ++s)
      for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l)
        bytes[at(track.first_device + s)] += bytes_of(track, s, track.layers[at(l)]);
  return *std::max_element(bytes.begin(), bytes.end());
}

double ms_per_byte(double gigabytes_per_s) {
  return gigabytes_per_s > 0 ? 1 / (gigabytes_per_s * 1e6) : 0;
}

/// Milliseconds that a byte of gradients moves where all holders call NCCL; latencies are those of
/// sums, not of bytes. So many holders stand on a node, at most.
double called_ms_per_byte(const AutoLayoutRequest& request, std::int32_t holders, double on_node,
                          double nodes) {
  const auto& speeds = request.prediction.speeds;
  CallShape shape;
  shape.holders = holders;
  shape.nodes = std::llround(nodes);
  shape.most = std::llround(on_node);
  shape.least = shape.holders - (shape.nodes - 1) * shape.most;
  const LinkSpeeds links{LinkSpeed{0, speeds.device.gigabytes_per_s},
                         LinkSpeed{0, speeds.node.gigabytes_per_s},
                         LinkSpeed{0, speeds.network.gigabytes_per_s}};
  return moving_ms(call_traffic(request.model->graph().sums, shape, 1, 1, links), 1, links);
}

}  // namespace

double reduction_ms_per_byte(const AutoLayoutRequest& request, std::int32_t holders,
                             std::int32_t apart) {
  const auto& speeds = request.prediction.speeds;
  const double on_node =
      std::clamp(request.cluster.devices_per_node / apart, 1, std::max(holders, 1));
  const double nodes = std::ceil(holders / on_node);
  const bool is_called = holders > 1 && is_by_nccl(request.model->graph().sums);
  const double moving =
      is_called ? called_ms_per_byte(request, holders, on_node, nodes)
                : 2 * (nodes - 1) / nodes / on_node * ms_per_byte(speeds.network.gigabytes_per_s) +
                      2 * (on_node - 1) / on_node * ms_per_byte(speeds.node.gigabytes_per_s);
  return gradient_bytes_per_element(request.prediction.dtype) /
         state_bytes_per_trained_element(request.prediction.dtype) *
         ((holders - 1.0) / holders * ms_per_byte(speeds.reduce_gigabytes_per_s) + moving);
}

LayoutEstimate::LayoutEstimate(const AutoLayoutRequest& request,
                               std::shared_ptr<const LayerWeights> weights, std::int32_t pipelines)
    : request_(request),
      weights_(std::move(weights)),
      phases_(has_phases(request.schedule)),
      reduction_ms_per_byte_(reduction_ms_per_byte(
          request, pipelines, std::max(request.cluster.devices() / pipelines, 1))) {
  const auto own = std::max<std::int64_t>(request.global_batch / pipelines, 1);
  microbatches_ = static_cast<double>(std::min(request.microbatches, own));
  const ModelGraph& model = request.model->graph();
  std::vector<double> of_module(model.modules.size());
  for (std::size_t i = 0; i < weights_->layers.size(); ++i) {
    const ModuleId module = weights_->layers[i].module;
    const double ms = weights_->work_ms[i];
    work_ms_ += ms;
    largest_layer_ms_ = std::max(largest_layer_ms_, ms);
    of_module[module.index()] += ms;
    if (!model.at(module).freeze) trained_bytes_ += weights_->state_bytes[i];
    const double bytes = weights_->state_bytes[i] + weights_->activation_bytes[i];
    // What is on a device in turn need not be there together.
    bytes_ += weights_->moves_to_host() ? weights_->state_bytes[i] : bytes;
    if (bytes > largest_layer_bytes_)
      largest_layer_bytes_ = bytes, largest_layer_ = weights_->layers[i];
  }
  llm_ms_ = std::exchange(of_module[model.llm().index()], 0);
  longest_encoder_ms_ = *std::max_element(of_module.begin(), of_module.end());
}

double LayoutEstimate::ms(const PipelineShape& shape) const {
  const double path = path_ms(shape);
  return path + latency_ms(shape.devices) + (microbatches_ - 1) * shape.slowest_ms +
         short_of_memory_ms(shape, path) + reduction_ms(shape);
}

/// What a step in phases takes longer where memory binds: windows that fill and drain anew, an llm
/// with too few microbatches in flight.
double LayoutEstimate::short_of_memory_ms(const PipelineShape& shape, double path_ms) const {
  if (!phases_ || request_.device_memory.count() == 0) return 0;
  const ModuleId llm = request_.model->graph().llm();
  const PhaseMemory held = held_in_phases(shape);
  const double refill_ms = std::max(0.0, path_ms - shape.slowest_ms);
  const double llm_ms = fullest(shape, [&](const Track&, std::int32_t, auto layer) {
    return weights_->layers[layer].module == llm ? weights_->work_ms[layer] : 0;
  });
  const auto [windows, held_back] = held.pace();
  return (windows - 1) * refill_ms + (held_back - 1) * (microbatches_ - windows) * llm_ms;
}

PhaseMemory LayoutEstimate::held_in_phases(const PipelineShape& shape) const {
  const ModuleId llm = request_.model->graph().llm();
  PhaseMemory held(shape.devices, static_cast<double>(request_.device_memory.count()));
  for (const Track& track : shape.tracks)
    for (const PhaseStage& stage : phase_stages(track, *weights_, llm))
      held.add(track.first_device + stage.segment, stage, microbatches_, microbatches_);
  return held;
}

bool LayoutEstimate::may_fit(const PipelineShape& shape) const {
  const auto memory = static_cast<double>(request_.device_memory.count());
  return memory == 0 || (phases_ ? held_in_phases(shape).wanted_bytes()
                                 : fullest_bytes(shape, microbatches_)) <= memory;
}

double LayoutEstimate::least_ms(PipelineForm form, std::int32_t groups, double slowest_ms) const {
  const double path_ms =
      form == PipelineForm::side_by_side ? longest_encoder_ms_ + llm_ms_ : work_ms_;
  return path_ms + latency_ms(groups) + (microbatches_ - 1) * slowest_ms +
         trained_bytes_ / groups * reduction_ms_per_byte_;
}

double LayoutEstimate::least_ms(std::int32_t groups) const {
  const double slowest = std::max(largest_layer_ms_, work_ms_ / groups);
  return llm_ms_ + (microbatches_ - 1) * slowest + trained_bytes_ / groups * reduction_ms_per_byte_;
}

double LayoutEstimate::least_bytes(const PipelineShape& shape) const {
  return weights_->moves_to_host() ? held_in_phases(shape).least_bytes() : fullest_bytes(shape, 1);
}

double LayoutEstimate::fullest_bytes(const PipelineShape& shape, double microbatches_max) const {
  return fullest(shape, [&](const Track& track, std::int32_t segment, auto layer) {
    const bool last = &track == &shape.tracks.back();
    const auto depth = track.segments() - segment + (last ? 0 : shape.tracks.back().segments());
    const double in_flight = std::min<double>(microbatches_max, depth);
    return weights_->state_bytes[layer] + in_flight * weights_->activation_bytes[layer];
  });
}

double LayoutEstimate::least_bytes(std::int32_t groups) const {
  return std::max(largest_layer_bytes_, bytes_ / groups);
}

/// Work of the longest path through a pipeline, for one microbatch.
double LayoutEstimate::path_ms(const PipelineShape& shape) const {
  const ModuleId llm_module = request_.model->graph().llm();
  double encoders = 0, llm = 0;
  for (const Track& track : shape.tracks) {
    double encoder_part = 0;
    for (const auto layer : track.layers)
      (weights_->layers[layer].module == llm_module ? llm : encoder_part) +=
          weights_->work_ms[layer];
    encoders = shape.form == PipelineForm::side_by_side ? std::max(encoders, encoder_part)
                                                        : encoders + encoder_part;
  }
  return encoders + llm;
}

/// Least time that rows and their gradients travel from group to group of a pipeline.
double LayoutEstimate::latency_ms(std::int32_t groups) const {
  const auto& speeds = request_.prediction.speeds;
  const bool one_node = groups <= request_.cluster.devices_per_node;
  return 2 * (groups - 1) * (one_node ? speeds.node : speeds.network).latency_ms;
}

/// Gradients of the fullest device.
double LayoutEstimate::reduction_ms(const PipelineShape& shape) const {
  if (reduction_ms_per_byte_ == 0) return 0;
  const ModelGraph& model = request_.model->graph();
  return reduction_ms_per_byte_ * fullest(shape, [&](const Track&, std::int32_t, auto layer) {
           return model.at(weights_->layers[layer].module).freeze ? 0
                                                                  : weights_->state_bytes[layer];
         });
}

}  // namespace troupe::scheduler
