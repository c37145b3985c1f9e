// By which way the rows of a module go to the next module group, where both have replicas and grids
// of their own.
//
// Pure values.

#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/vocabulary/units.hpp"

namespace troupe {

/// Ways of one redistribution: what arrives is the same by each of them, to the bit, and gradients
/// go back by the same one.
enum class Route : std::uint8_t {
  direct,  ///< From the ranks that have rows to all ranks that need them.
  leader,  ///< From the first rank of the source to the destination's, then inside its grid.
  gather_scatter,  ///< To one rank of the first replica, and from there to all (DFLOP, section 4).
};
/// What job files, plans and messages call them, in their order.
inline constexpr std::array<std::string_view, 3> kRouteNames{"direct", "leader", "gather-scatter"};

/// Its name of `kRouteNames`.
inline std::string_view to_string(Route route) {
  return kRouteNames[static_cast<std::size_t>(route)];
}

/// The route of a boundary in one iteration, and what it was chosen by.
struct BoundaryRoute {
  ModuleId module;              ///< Whose rows cross.
  ModuleGroupId group;          ///< That takes them.
  Route route = Route::direct;  ///< The one that is taken.
  bool pinned = false;          ///< By the job, whatever is predicted.
  /// Per route, in their order: milliseconds that all rows of the iteration take forward, if they
  /// move at once and nothing else does; zeros where no speeds of links are known.
  std::vector<double> predicted_ms;

  friend bool operator==(const BoundaryRoute&, const BoundaryRoute&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, BoundaryRoute& x) {
    return f(x.module, x.group, x.route, x.pinned, x.predicted_ms);
  }
};

}  // namespace troupe
