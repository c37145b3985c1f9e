// Measured over predicted time, by shape: the table that corrections learn into.
//
// Pure; a value that can be copied and saved. Single owner, not thread-safe.

#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "runtime/vocabulary/units.hpp"

namespace troupe::balancer {

/// What a measurement is filed under: the module and its tokens, rounded up to a multiple of the
/// granularity, since kernels are chosen by ranges of sizes.
struct WorkShape {
  std::int32_t module = 0;
  TokenCount tokens = 0;

  friend auto operator<=>(const WorkShape&, const WorkShape&) = default;
};

/// What a table files, and when it speaks.
struct ShapeFactorRules {
  TokenCount granularity = 64;        ///< Tokens per class of shapes; >= 1.
  double deviation_min = 0;           ///< Relative deviation up to which a factor is noise.
  std::int64_t measurements_min = 1;  ///< Of a shape, before its factor is known.
  std::size_t shapes_max = 4096;      ///< Remembered; the least deviating one makes room.
};

struct ShapeFactor {
  double factor = 1;
  std::int64_t measurements = 0;

  friend bool operator==(const ShapeFactor&, const ShapeFactor&) = default;
};

class ShapeFactors {
 public:
  explicit ShapeFactors(ShapeFactorRules rules) : rules_(rules) {}

  /// The class of a shape, which all below take.
  WorkShape filed(WorkShape shape) const;

  /// What was learned of it so far; null for nothing.
  const ShapeFactor* find(WorkShape filed) const;
  /// The same when it was measured often enough.
  const ShapeFactor* find_known(WorkShape filed) const;
  /// Its entry, made where there is none: then the least deviating one goes, if the table is full.
  /// Cost: O(log shapes), O(shapes) where one goes.
  ShapeFactor& entry(WorkShape filed);

  using Entries = std::map<WorkShape, ShapeFactor>;
  /// All that it holds, to be saved.
  const Entries& entries() const { return entries_; }
  /// Goes on with what an earlier table held, as far as there is room.
  void restore(const Entries& entries);

  bool deviates(double factor) const;
  /// Shapes that are known and deviate.
  std::size_t deviating() const;
  /// Factors of the known shapes of each module, by shape.
  std::map<std::int32_t, std::vector<double>> known_by_module() const;

 private:
  bool known(const ShapeFactor& entry) const {
    return entry.measurements >= rules_.measurements_min;
  }

  ShapeFactorRules rules_;
  Entries entries_;
};

}  // namespace troupe::balancer
