// Which rows go from which replica of a module to which replica of the next, when the two have
// different numbers of replicas (fan-in, fan-out) and every replica holds any number of rows.
//
// Pure values; thread-safe. Rows keep their global order: those of replica 0 first.

#pragma once

#include <cstdint>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::scheduler {

/// Consecutive rows that move together. Read backwards it is the way of their gradients, which
/// are put in their places and never added up.
struct RowRoute {
  std::int32_t source = 0;
  std::int32_t destination = 0;
  TokenCount source_begin = 0;       ///< First row, counted at the source.
  TokenCount destination_begin = 0;  ///< The same row, counted at the destination.
  TokenCount rows = 0;               ///< > 0.

  friend bool operator==(const RowRoute&, const RowRoute&) = default;
};

/// As many replicas on both sides: each keeps its own. Where the destinations divide the sources,
/// each takes the whole rows of its share of them (fan-in); where the sources divide the
/// destinations, each source cuts its rows evenly over its share (fan-out); else all rows are cut
/// evenly. Even cuts differ by at most one row, the first ones larger. Routes are in row order,
/// none is empty.
///
/// Errors: invalid_argument: no source, a negative count, destinations < 1.
/// Cost: O(sources + destinations).
Result<std::vector<RowRoute>> route_rows(const std::vector<TokenCount>& rows_per_source,
                                         std::int32_t destinations);

}  // namespace troupe::scheduler
