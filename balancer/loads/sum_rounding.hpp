// Up to where sums of times, loads and shares count as equal.

#pragma once

namespace troupe::balancer {

/// Sums of other orders differ in their last digits: what is less by no more, as a share of the
/// sum, is as much.
inline constexpr double kSumRounding = 1e-9;

}  // namespace troupe::balancer
