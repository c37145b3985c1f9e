#include "balancer/microbatches/partition_ilp.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>

#include "balancer/loads/cbc_solver.hpp"
#include "balancer/microbatches/partition.hpp"
#include "balancer/microbatches/partition_search.hpp"
#include "runtime/vocabulary/named_value.hpp"

namespace troupe::balancer {

namespace {

constexpr std::array kNames{
    std::pair{PartitionMethod::automatic, std::string_view{"auto"}},
    std::pair{PartitionMethod::ilp, std::string_view{"ilp"}},
    std::pair{PartitionMethod::lpt, std::string_view{"lpt"}},
    std::pair{PartitionMethod::search, std::string_view{"search"}},
};

// Equation 6 with equal buckets told apart: the k-th largest sample may only use the first k + 1.
class PartitionProgram {
 public:
  PartitionProgram(std::span<const Workload> workloads, std::size_t bucket_count)
      : workloads_(workloads), bucket_count_(bucket_count), order_(workloads.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](auto a, auto b) {
      return work(a).encoder_ms + work(a).llm_ms > work(b).encoder_ms + work(b).llm_ms;
    });
  }

  LinearProgram build(double lower_bound, double upper_bound) {
    using Sense = LinearProgram::Sense;
    LinearProgram program;
    largest_ = program.add_column(1, lower_bound, upper_bound, false);
    std::vector<std::vector<LinearProgram::Term>> encoder(bucket_count_);
    std::vector<std::vector<LinearProgram::Term>> llm(bucket_count_);
    for (std::size_t k = 0; k < order_.size(); ++k) {
      std::vector<LinearProgram::Term> once;
      for (std::size_t b = 0; b < std::min(bucket_count_, k + 1); ++b) {
        const auto column = program.add_column(0, 0, 1, true);
        once.push_back({column, 1});
        encoder[b].push_back({column, work(order_[k]).encoder_ms});
        llm[b].push_back({column, work(order_[k]).llm_ms});
      }
      program.add_row(std::move(once), Sense::equal, 1);
    }
    for (auto* side : {&encoder, &llm})
      for (auto& terms : *side) {
        terms.push_back({largest_, -1});
        program.add_row(std::move(terms), Sense::at_most, 0);
      }
    return program;
  }

  SampleGroups read(const std::vector<double>& values) const {
    SampleGroups buckets(bucket_count_);
    std::size_t column = 1;
    for (std::size_t k = 0; k < order_.size(); ++k)
      for (std::size_t b = 0; b < std::min(bucket_count_, k + 1); ++b, ++column)
        if (values[column] > 0.5) buckets[b].push_back(order_[k]);
    for (auto& bucket : buckets) std::sort(bucket.begin(), bucket.end());
    return buckets;
  }

  // A partition in this program's numbering: buckets by their largest sample.
  std::vector<double> write(const SampleGroups& buckets, double largest) const {
    std::vector<std::size_t> bucket_of(order_.size());
    for (std::size_t b = 0; b < buckets.size(); ++b)
      for (const auto sample : buckets[b]) bucket_of[static_cast<std::size_t>(sample)] = b;
    std::vector<std::optional<std::size_t>> number(buckets.size());
    std::size_t numbered = 0;
    std::vector<double> values{largest};
    for (std::size_t k = 0; k < order_.size(); ++k) {
      auto& mine = number[bucket_of[static_cast<std::size_t>(order_[k])]];
      if (!mine) mine = numbered++;
      for (std::size_t b = 0; b < std::min(bucket_count_, k + 1); ++b)
        values.push_back(b == *mine ? 1 : 0);
    }
    return values;
  }

 private:
  Workload work(std::int32_t sample) const { return workloads_[static_cast<std::size_t>(sample)]; }

  std::span<const Workload> workloads_;
  std::size_t bucket_count_;
  std::vector<std::int32_t> order_;
  std::int32_t largest_ = 0;
};

// Improves `best` by CBC; true if the solver gave a partition at least as good.
bool solve_ilp(std::span<const Workload> workloads, const PartitionOptions& options,
               const SampleGroups& start, Partition& best) {
  const auto binaries =
      static_cast<std::int64_t>(workloads.size()) *
      std::min<std::int64_t>(options.bucket_count, static_cast<std::int64_t>(workloads.size()));
  if (binaries == 0 || binaries > kIlpBinariesMax) return false;
  const double upper = largest_sum(workloads, start);
  // Scaled to a largest sum near 1: tolerances of the solver are absolute.
  std::vector<Workload> scaled(workloads.begin(), workloads.end());
  for (auto& workload : scaled) {
    workload.encoder_ms /= upper;
    workload.llm_ms /= upper;
  }
  PartitionProgram program(scaled, static_cast<std::size_t>(options.bucket_count));
  const auto solution = solve_program(program.build(best.lower_bound_ms / upper, 1 + 1e-9),
                                      {.time_ms = options.time_limit_ms}, program.write(start, 1));
  if (!solution.ok()) return false;
  auto buckets = program.read(solution.value().values);
  if (!is_partition(buckets, workloads.size())) return false;
  const double found = largest_sum(workloads, buckets);
  if (solution.value().optimal)
    best.lower_bound_ms = std::max(best.lower_bound_ms, std::min(found, best.max_ms));
  if (found > best.max_ms) return false;
  best.buckets = std::move(buckets);
  best.max_ms = found;
  best.method = "ilp";
  return true;
}

}  // namespace

Result<PartitionMethod> partition_method_from(std::string_view name) {
  return find_named(kNames, name, "partition method", "method");
}

Result<Partition> partition(std::span<const Workload> workloads, const PartitionOptions& options) {
  if (auto fine = check_workloads(workloads); !fine.ok()) return fine.error();
  if (auto fine = check_group_count(options.bucket_count, "buckets"); !fine.ok())
    return fine.error();
  if (!(options.time_limit_ms > 0) || !std::isfinite(options.time_limit_ms))
    return Error{Errc::invalid_argument,
                 "the time limit must be a finite number of ms > 0",
                 "time_limit_ms",
                 {}};
  Partition best;
  best.lower_bound_ms = partition_lower_bound(workloads, options.bucket_count);
  best.buckets = partition_lpt(workloads, options.bucket_count);
  best.max_ms = largest_sum(workloads, best.buckets);
  best.method = "lpt";
  const auto optimal = [&] { return best.max_ms <= best.lower_bound_ms * (1 + 1e-12); };
  const auto method = options.method;
  if (method == PartitionMethod::automatic || method == PartitionMethod::search) {
    best.buckets = improve_partition(workloads, std::move(best.buckets), {}, {});
    best.max_ms = largest_sum(workloads, best.buckets);
    best.method = "search";
  }
  if (method == PartitionMethod::ilp || (method == PartitionMethod::automatic && !optimal())) {
    const auto start = best.buckets;
    solve_ilp(workloads, options, start, best);
  }
  return best;
}

}  // namespace troupe::balancer
