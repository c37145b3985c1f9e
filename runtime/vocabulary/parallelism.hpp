// Along which axes the devices of one stage share its work.

#pragma once

#include <compare>
#include <cstdint>

namespace troupe {

/// Sizes of a grid of ranks that compute the same layers together.
struct Parallelism {
  std::int32_t tp = 1;  ///< Tensor parallel: ranks that share matrices. >= 1.
  std::int32_t cp = 1;  ///< Context parallel: ranks that share the rows of a microbatch. >= 1.
  /// Devices of a stage.
  std::int32_t ranks() const { return tp * cp; }

  friend auto operator<=>(const Parallelism&, const Parallelism&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Parallelism& x) {
    return f(x.tp, x.cp);
  }
};

}  // namespace troupe
