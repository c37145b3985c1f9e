// DFLOP's hybrid as published, and the better one: integer program, longest first, local search.
//
// Not pure where CBC takes part: its time limit makes the answer depend on the machine. Run it
// once and send the result.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "balancer/loads/workload.hpp"

namespace troupe::balancer {

enum class PartitionMethod : std::uint8_t {
  automatic,  ///< Local search, then CBC from there where it is small and not yet optimal.
  ilp,        ///< As published: CBC with a time limit, longest first where it finds nothing.
  lpt,        ///< Longest first alone.
  search,     ///< Longest first and local search; pure.
};

/// `auto`, `ilp`, `lpt`, `search`. Errors: not_found, naming the nearest.
Result<PartitionMethod> partition_method_from(std::string_view name);

struct PartitionOptions {
  std::int64_t bucket_count = 1;  ///< >= 1; more buckets than samples leave some empty.
  PartitionMethod method = PartitionMethod::automatic;
  double time_limit_ms = 100;  ///< For CBC alone; > 0.
};

struct Partition {
  SampleGroups buckets;
  double max_ms = 0;          ///< Largest encoder or LLM sum.
  double lower_bound_ms = 0;  ///< No partition is below.
  std::string_view method;    ///< What found `buckets`: `ilp`, `lpt` or `search`.
};

/// Programs with more binary variables (samples x buckets) than this go to no solver: their root
/// relaxation alone outlasts any useful limit.
inline constexpr std::int64_t kIlpBinariesMax = 12'000;

/// Partitions by the method. Ties and bounds: see partition.hpp and partition_search.hpp.
///
/// Errors:
/// - invalid_argument: a bad workload, bucket count or time limit.
Result<Partition> partition(std::span<const Workload> workloads, const PartitionOptions& options);

}  // namespace troupe::balancer
