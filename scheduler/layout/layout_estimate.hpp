// What a layout costs at a glance: estimates that decide which candidates are simulated first, and
// bounds that show which need not even be cut.
//
// Pure. Helper of layout_candidates.cpp.

#pragma once

#include <cstdint>
#include <memory>

#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/layout/layout_shapes.hpp"
#include "scheduler/layout/phase_memory.hpp"

namespace troupe::scheduler {

/// Milliseconds that a byte of a device's state takes in the sum of its gradients: of n holders
/// each adds up an nth of it n - 1 times, and moves the same twice (gradient_sum.hpp). Holders are
/// `apart` devices from one another; where several stand on a node, and others elsewhere, they are
/// added up there first and share what crosses the network (`SumOrder::tree_by_node`). Where the
/// model's sums are calls to NCCL it moves what `call_traffic` says, as if each holder were one
/// device.
/// REQUIRES: both >= 1.
double reduction_ms_per_byte(const AutoLayoutRequest& request, std::int32_t holders,
                             std::int32_t apart);

/// Of one number of pipelines at one choice of degrees. Bytes are those of one device.
class LayoutEstimate {
 public:
  /// `request` outlives this.
  LayoutEstimate(const AutoLayoutRequest& request, std::shared_ptr<const LayerWeights> weights,
                 std::int32_t pipelines);

  const std::shared_ptr<const LayerWeights>& weights() const { return weights_; }

  /// Longest path, slowest device for all other microbatches, reduction. In phases the longest path
  /// once for each window that memory has room for, and the llm as far as memory holds it back.
  double ms(const PipelineShape& shape) const;

  /// No shape of this form on so many groups whose slowest device works `slowest_ms` or more has
  /// less `ms`, but for rounding.
  double least_ms(PipelineForm form, std::int32_t groups, double slowest_ms) const;

  /// No shape on at most so many groups has less `ms`.
  double least_ms(std::int32_t groups) const;

  /// True if the shape fits as the schedule wants to run it: with as many microbatches in flight as
  /// there are stages from each to the end; in phases, which go over as few at a time as fit, with
  /// one of encoders. Always, where memory is not limited.
  bool may_fit(const PipelineShape& shape) const;

  /// What its devices hold in a schedule of phases.
  PhaseMemory held_in_phases(const PipelineShape& shape) const;

  /// What the fullest device holds with one microbatch of each of its stages, of which encoders
  /// may have some in host memory.
  double least_bytes(const PipelineShape& shape) const;

  /// What the fullest device holds: its state, and of each stage as many microbatches as there are
  /// stages from it to the end, `microbatches_max` at most.
  double fullest_bytes(const PipelineShape& shape, double microbatches_max) const;

  /// No shape on at most so many groups has a device that holds less than the mean, or than a
  /// layer.
  double least_bytes(std::int32_t groups) const;

  /// The layer that is hardest to hold, with one microbatch.
  LayerId largest_layer() const { return largest_layer_; }
  double largest_layer_bytes() const { return largest_layer_bytes_; }

 private:
  double short_of_memory_ms(const PipelineShape& shape, double path_ms) const;
  double path_ms(const PipelineShape& shape) const;
  double latency_ms(std::int32_t groups) const;
  double reduction_ms(const PipelineShape& shape) const;

  const AutoLayoutRequest& request_;
  std::shared_ptr<const LayerWeights> weights_;
  double microbatches_ = 1;  ///< Of a pipeline and step.
  bool phases_ = false;
  double reduction_ms_per_byte_ = 0;  ///< Of a device's trained state.
  double work_ms_ = 0, llm_ms_ = 0, largest_layer_ms_ = 0;
  double longest_encoder_ms_ = 0;  ///< Of one module.
  double bytes_ = 0, trained_bytes_ = 0;
  LayerId largest_layer_;
  double largest_layer_bytes_ = 0;
};

}  // namespace troupe::scheduler
