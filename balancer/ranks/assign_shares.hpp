// Which place takes which of as many shares, so that the sum of what that costs is least.
//
// Node-wise placement for a sum over nodes: unlike equation 5 of OrchMLLM, which asks for the least
// maximum over ranks and is an integer program (node_wise.hpp), the relaxation of this one has
// whole solutions, and places may be on nodes of any sizes. Pure and deterministic.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace troupe::balancer {

/// Per share its place. Exact, by shortest augmenting paths (Jonker and Volgenant, Computing 38,
/// 1987). Ties go the same way each time.
///
/// `costs`: of share s in place p at [s * count + p]; infinite where it may not go. Where that
/// leaves no way to place all, share s stays in place s.
/// Cost: O(count^3). REQUIRES: count^2 costs, none of them NaN or below -1e300.
std::vector<std::size_t> assign_shares(std::span<const double> costs, std::size_t count);

}  // namespace troupe::balancer
