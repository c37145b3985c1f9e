// Learns, while training runs, which shapes take another time than the profile predicts, and stops
// watching when that no longer pays (DFLOP section 3.4.3).
//
// Pure apart from its own state: it is told measurements and knows no clock. Single owner, not
// thread-safe; a value that can be copied and saved.

#pragma once

#include <cstdint>

#include "balancer/corrections/shape_factors.hpp"

namespace troupe::balancer {

struct CorrectionOptions {
  TokenCount granularity = 64;  ///< Tokens per class of shapes; >= 1.
  /// Relative deviation up to which a shape is left to the profile and a measurement has no
  /// benefit: noise, not a regime.
  double deviation_min = 0.05;
  double blend = 0.5;                 ///< Weight of a new measurement; in (0, 1].
  std::int64_t measurements_min = 2;  ///< Of a shape, before it is corrected.
  std::int64_t iterations = 20;       ///< I: the benefit is averaged over this many.
  std::size_t shapes_max = 4096;      ///< Remembered; the least deviating one makes room.
};

class AdaptiveCorrection {
 public:
  explicit AdaptiveCorrection(CorrectionOptions options = {})
      : options_(options),
        factors_({options.granularity, options.deviation_min, options.measurements_min,
                  options.shapes_max}) {}

  /// The prediction times the shape's learned factor; unchanged where that deviates too little, and
  /// for a shape that was not measured often enough.
  double corrected_ms(WorkShape shape, double predicted_ms) const;

  /// C: throughput of a step without and with tracking, tokens per millisecond, both measured in
  /// the first iterations. A negative difference counts as no cost.
  void set_tracking_cost(double throughput_without, double throughput_with);

  /// One measured execution and what the profile (not `corrected_ms`) said of it. Ignored while
  /// tracking is off, and where a time or the shape is not > 0 and finite.
  void record(WorkShape shape, double predicted_ms, double measured_ms);

  /// Ends an iteration. After each I iterations the mean benefit (equation 7: the difference
  /// between actual throughput and the one predicted with what was learned before) is held against
  /// C; tracking stops where it does not exceed it. What was learned stays in use.
  void end_iteration();

  bool tracking() const { return tracking_; }

  /// What it knows of the benefit of tracking, between two iterations.
  struct Watch {
    bool tracking = true;
    double benefit = 0;           ///< Sum over the iterations of the running window.
    std::int64_t iterations = 0;  ///< Of that window.

    friend bool operator==(const Watch&, const Watch&) = default;
  };
  Watch watch() const { return {tracking_, window_sum_, window_count_}; }
  const ShapeFactors& factors() const { return factors_; }
  /// Goes on with what an earlier one had learned. Another layout, model or device is worth
  /// watching anew: then `watch` is a new one.
  void restore(const ShapeFactors::Entries& factors, const Watch& watch);

  /// Mean benefit of the last full window, tokens per millisecond.
  double mean_benefit() const { return mean_benefit_; }
  /// Shapes whose predictions are corrected at present.
  std::size_t corrected_shapes() const { return factors_.deviating(); }

 private:
  CorrectionOptions options_;
  ShapeFactors factors_;  // Measured over predicted, blended.
  bool tracking_ = true;
  double tracking_cost_ = 0;
  double mean_benefit_ = 0;
  double iteration_sum_ = 0;  // Of the benefits recorded in this iteration.
  std::int64_t iteration_count_ = 0;
  double window_sum_ = 0;  // Of the iterations' mean benefits.
  std::int64_t window_count_ = 0;
};

}  // namespace troupe::balancer
