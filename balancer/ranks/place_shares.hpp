// Which place takes which share, for any number of them: node-wise placement for a sum where
// `assign_shares`, whose cost grows with the cube, would take longer than it saves.
//
// Pure and deterministic: bounded by how many costs it asks for, never by time, so that whoever
// places the same shares comes to the same places.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace troupe::balancer {

/// Shares and as many places; share s is in place s.
struct SharePlacement {
  std::size_t count = 0;
  /// Of a share in a place, >= 0; infinite where it may not go, finite where it is.
  std::function<double(std::size_t share, std::size_t place)> cost;
  /// Places where a share costs about the same, ascending: those of a node. Nodes may have any
  /// numbers of places, and may share some.
  std::span<const std::vector<std::size_t>> nodes = {};
  /// Per share the nodes where it costs less than elsewhere, that where it costs least first.
  std::vector<std::vector<std::size_t>> wanted = {};
};

/// So many are placed all at once: at most a quarter of a million steps, in less than a
/// millisecond.
inline constexpr std::size_t kPlacedAtOnce = 64;

/// Per share its place; all of them together cost less than where they are, or none moves.
///
/// Up to `kPlacedAtOnce` exact (assign_shares.hpp). Of more, the share that costs most first: it,
/// those in the places that it wants, those in the places that these want and so on, 16 in all,
/// are placed exactly among each other; so on until no share's 16 change, or `costs_max` costs were
/// asked for. No bound is proved; at most 4 % above the exact sum in the cases of the test, with 65
/// to 256 shares on nodes of unlike sizes. Ties go the same way each time.
/// Cost: of more than `kPlacedAtOnce` count + costs_max + 256 costs at most, 16 steps for each of
/// these, and O(places of the nodes it wants) per share and pass; memory O(count).
/// REQUIRES: wanted[share] for each where there are more than `kPlacedAtOnce`; no cost is NaN.
std::vector<std::size_t> place_shares(const SharePlacement& problem, std::int64_t costs_max);

}  // namespace troupe::balancer
