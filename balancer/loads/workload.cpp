#include "balancer/loads/workload.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace troupe::balancer {

namespace {

Error bad_workload(std::size_t sample, const char* field, double value) {
  return {Errc::invalid_argument,
          std::string(field) + " must be a finite number >= 0, found " + std::to_string(value),
          "sample " + std::to_string(sample),
          {}};
}

bool is_time(double value) { return std::isfinite(value) && value >= 0; }

template <class Field>
Spread spread(std::span<const Workload> loads, Field field) {
  Spread result;
  if (loads.empty()) return result;
  const auto count = static_cast<double>(loads.size());
  for (const auto& load : loads) {
    result.mean_ms += field(load) / count;
    result.max_ms = std::max(result.max_ms, field(load));
  }
  double squares = 0;
  for (const auto& load : loads) squares += std::pow(field(load) - result.mean_ms, 2);
  result.std_ms = std::sqrt(squares / count);
  return result;
}

}  // namespace

Status check_workloads(std::span<const Workload> workloads) {
  if (workloads.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    return Error{Errc::invalid_argument, "more samples than 32 bits count", {}, {}};
  for (std::size_t i = 0; i < workloads.size(); ++i) {
    if (!is_time(workloads[i].encoder_ms))
      return bad_workload(i, "encoder_ms", workloads[i].encoder_ms);
    if (!is_time(workloads[i].llm_ms)) return bad_workload(i, "llm_ms", workloads[i].llm_ms);
  }
  const auto sum = total(workloads);
  if (!std::isfinite(sum.encoder_ms + sum.llm_ms))
    return Error{Errc::invalid_argument, "the workloads add up to infinity", "samples", {}};
  return Done{};
}

Status check_group_count(std::int64_t count, const char* what) {
  if (count >= 1 && count <= kGroupCountMax) return Done{};
  return Error{Errc::invalid_argument,
               std::string(what) + " must be in [1, " + std::to_string(kGroupCountMax) +
                   "], found " + std::to_string(count),
               what,
               {}};
}

Workload total(std::span<const Workload> workloads) {
  Workload sum;
  for (const auto& workload : workloads) sum += workload;
  return sum;
}

std::vector<Workload> group_loads(std::span<const Workload> workloads, const SampleGroups& groups) {
  std::vector<Workload> loads(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (auto sample : groups[g]) loads[g] += workloads[static_cast<std::size_t>(sample)];
  return loads;
}

std::vector<std::int32_t> group_of(const SampleGroups& groups, std::size_t sample_count) {
  std::vector<std::int32_t> of(sample_count, 0);
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const auto sample : groups[g])
      of[static_cast<std::size_t>(sample)] = static_cast<std::int32_t>(g);
  return of;
}

std::vector<std::int32_t> part_of(const MicrobatchPlan& plan, const std::vector<bool>& has_rows) {
  const auto llm = group_of(plan.llm, has_rows.size());
  std::vector<std::int32_t> parts(has_rows.size(), 0), fed;
  for (const auto& group : plan.encoder) {
    fed.clear();
    for (const auto sample : group)
      if (has_rows[static_cast<std::size_t>(sample)])
        fed.push_back(llm[static_cast<std::size_t>(sample)]);
    std::sort(fed.begin(), fed.end());
    fed.erase(std::unique(fed.begin(), fed.end()), fed.end());
    for (const auto sample : group) {
      const auto s = static_cast<std::size_t>(sample);
      if (!has_rows[s]) continue;
      const auto place = std::lower_bound(fed.begin(), fed.end(), llm[s]) - fed.begin();
      parts[s] = static_cast<std::int32_t>(place);
    }
  }
  return parts;
}

Spread encoder_spread(std::span<const Workload> loads) {
  return spread(loads, [](const Workload& load) { return load.encoder_ms; });
}

Spread llm_spread(std::span<const Workload> loads) {
  return spread(loads, [](const Workload& load) { return load.llm_ms; });
}

MicrobatchPlan without_deferral(SampleGroups groups) {
  for (auto& group : groups) std::sort(group.begin(), group.end());
  MicrobatchPlan plan;
  plan.llm = groups;
  plan.encoder = std::move(groups);
  return plan;
}

MicrobatchPlan make_plan(SampleGroups encoder, SampleGroups llm) {
  MicrobatchPlan plan;
  for (auto& group : encoder) std::sort(group.begin(), group.end());
  for (auto& group : llm) std::sort(group.begin(), group.end());
  for (std::size_t m = 0; m < encoder.size(); ++m)
    std::set_difference(encoder[m].begin(), encoder[m].end(), llm[m].begin(), llm[m].end(),
                        std::back_inserter(plan.deferred));
  std::sort(plan.deferred.begin(), plan.deferred.end());
  plan.encoder = std::move(encoder);
  plan.llm = std::move(llm);
  return plan;
}

bool is_partition(const SampleGroups& groups, std::size_t sample_count) {
  std::vector<bool> seen(sample_count, false);
  std::size_t found = 0;
  for (const auto& group : groups)
    for (auto sample : group) {
      if (sample < 0 || static_cast<std::size_t>(sample) >= sample_count) return false;
      if (seen[static_cast<std::size_t>(sample)]) return false;
      seen[static_cast<std::size_t>(sample)] = true;
      ++found;
    }
  return found == sample_count;
}

}  // namespace troupe::balancer
