// What a layout costs at a glance: estimates that decide which candidates are simulated first, and
// bounds that show which need not even be cut.
//
// Pure. Helper of layout_candidates.cpp.

#pragma once

#include <cstdint>
#include <memory>

#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/layout/layout_shapes.hpp"

namespace troupe::scheduler {

/// Milliseconds that a byte of a device's state takes in the sum of its gradients: of n holders
/// each adds up an nth of it n - 1 times, and moves the same twice (gradient_sum.hpp). REQUIRES:
/// holders >= 1.
double reduction_ms_per_byte(const AutoLayoutRequest& request, std::int32_t holders);

/// Of one number of pipelines at one choice of degrees. Bytes are those of one device.
class LayoutEstimate {
 public:
  /// `request` outlives this.
  LayoutEstimate(const AutoLayoutRequest& request, std::shared_ptr<const LayerWeights> weights,
                 std::int32_t pipelines);

  const std::shared_ptr<const LayerWeights>& weights() const { return weights_; }

  /// Longest path, slowest device for all other microbatches, reduction.
  double ms(const PipelineShape& shape) const;

  /// No shape of this form on so many groups whose slowest device works `slowest_ms` or more has
  /// less `ms`, but for rounding.
  double least_ms(PipelineForm form, std::int32_t groups, double slowest_ms) const;

  /// No shape on at most so many groups has less `ms`.
  double least_ms(std::int32_t groups) const;

  /// What the fullest device holds: its state, and of each stage as many microbatches as there are
  /// stages from it to the end, `microbatches_max` at most.
  double fullest_bytes(const PipelineShape& shape, double microbatches_max) const;

  /// No shape on at most so many groups has a device that holds less than the mean, or than a
  /// layer.
  double least_bytes(std::int32_t groups) const;

  /// The layer that is hardest to hold, with one microbatch.
  LayerId largest_layer() const { return largest_layer_; }
  double largest_layer_bytes() const { return largest_layer_bytes_; }

  /// Microbatches of a pipeline and step.
  double microbatches() const { return microbatches_; }

 private:
  double path_ms(const PipelineShape& shape) const;
  double latency_ms(std::int32_t groups) const;
  double reduction_ms(const PipelineShape& shape) const;

  const AutoLayoutRequest& request_;
  std::shared_ptr<const LayerWeights> weights_;
  double microbatches_ = 1;
  double reduction_ms_per_byte_ = 0;  ///< Of a device's trained state.
  double work_ms_ = 0, llm_ms_ = 0, largest_layer_ms_ = 0;
  double longest_encoder_ms_ = 0;  ///< Of one module.
  double bytes_ = 0, trained_bytes_ = 0;
  LayerId largest_layer_;
  double largest_layer_bytes_ = 0;
};

}  // namespace troupe::scheduler
