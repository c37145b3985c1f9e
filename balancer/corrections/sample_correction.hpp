// Learns from packed parts which shapes of samples take another time than the profile predicts, so
// that a sample weighs what samples like it were measured to take (DFLOP section 3.4.3).
//
// A part is measured as a whole. What it takes beyond what is expected of it is laid to the shapes
// in it by their shares of its work, mostly to the largest. Parts mix samples differently, so only
// shapes that are slow wherever they go keep the blame: one that rode along is cleared by the parts
// without the slow one.
//
// Pure apart from its own state: it knows no clock. Single owner, not thread-safe; a value that can
// be copied and saved.

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "balancer/corrections/shape_factors.hpp"

namespace troupe::balancer {

/// What samples of one shape bring to a part.
struct ShapeShare {
  WorkShape shape;
  double predicted_ms = 0;  ///< By the profile, without what a part takes whatever it holds; >= 0.
};

struct SampleCorrectionOptions {
  TokenCount granularity = 64;  ///< Tokens per class of shapes; >= 1.
  /// Relative deviation up to which a shape keeps its weight: more than for a part, because what a
  /// part's noise says of one of its samples is louder than the part's.
  double deviation_min = 0.1;
  /// The n-th measurement of a shape weighs 1 / n, and no less than this, so that a device whose
  /// speed changes is followed.
  double blend_min = 0.2;
  std::int64_t measurements_min = 4;  ///< Of a shape, before it is corrected.
  /// Shapes of a module measured that often, before others of it follow their median: a device that
  /// is slow as a whole shows in few steps, and a few odd shapes move no median.
  std::int64_t shapes_min = 4;
  std::size_t shapes_max = 4096;  ///< Remembered; the least deviating one makes room.
};

class SampleCorrection {
 public:
  explicit SampleCorrection(SampleCorrectionOptions options = {})
      : options_(options),
        factors_({options.granularity, options.deviation_min, options.measurements_min,
                  options.shapes_max}) {}

  /// What the profile's prediction for a sample of this shape is to be multiplied with; exactly 1
  /// where nothing is known or where it deviates too little. A shape that was not measured often
  /// enough follows the median of its module's, as of the last iteration's end.
  double factor(WorkShape shape) const;

  /// One measured execution of a part. `ratio`: measured over predicted by the profile; ignored
  /// where it is not > 0 and finite. Shares without tokens or work are left out. Returns the ratio
  /// that is expected of such a part from now on; 1 where nothing was learned.
  /// Cost: O(shares log shapes).
  double record(std::span<const ShapeShare> part, double ratio);

  /// Ends an iteration: medians follow what was recorded.
  void end_iteration();

  const ShapeFactors& factors() const { return factors_; }
  /// Goes on with what an earlier one had learned up to an iteration's end.
  void restore(const ShapeFactors::Entries& factors);

  /// Shapes that were measured often enough and deviate.
  std::size_t corrected_shapes() const { return factors_.deviating(); }

 private:
  SampleCorrectionOptions options_;
  ShapeFactors factors_;
  std::map<std::int32_t, double> medians_;  // Per module with enough known shapes.
};

}  // namespace troupe::balancer
