#include "scheduler/cost/profile_batch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "runtime/vocabulary/random.hpp"

namespace troupe::scheduler {

namespace {

constexpr std::int64_t kLargestBatch = std::int64_t{1} << 22;
// Samples drawn in all; bounds the time where p_error asks for absurdly many trials.
constexpr double kDrawsMax = 3e8;

Error wrong(std::string where, std::string message, std::string fix = {}) {
  return Error{Errc::invalid_argument, std::move(message), std::move(where), std::move(fix)};
}

Status check_input(const ProfileBatchInput& input) {
  if (input.samples.empty() || input.samples.front().empty())
    return wrong("samples", "there are no samples", "give at least one with one module");
  for (std::size_t s = 0; s < input.samples.size(); ++s) {
    const std::string where = "samples[" + std::to_string(s) + "]";
    if (input.samples[s].size() != input.samples.front().size())
      return wrong(where, "it does not name every module");
    for (const double ms : input.samples[s])
      if (!(ms >= 0 && std::isfinite(ms))) return wrong(where, "a time is negative or not finite");
  }
  if (!(input.alpha > 0 && input.alpha < 1)) return wrong("alpha", "it is not in (0, 1)");
  if (!(input.p_error > 0 && input.p_error < 1)) return wrong("p_error", "it is not in (0, 1)");
  if (input.first_size < 1) return wrong("first_size", "a batch has at least one sample");
  if (input.dp < 1 || input.devices < 1) return wrong("devices", "there are no devices");
  if (input.devices % input.dp != 0) {
    const auto below = std::max(1, input.devices / input.dp) * input.dp;
    return wrong("devices",
                 std::to_string(input.devices) + " devices cannot be shared out over " +
                     std::to_string(input.dp) + " equal replicas",
                 "use " + std::to_string(below) + " devices");
  }
  return Done{};
}

std::string text_of(const std::vector<std::int32_t>& allocation) {
  std::string text;
  for (const auto count : allocation) text += (text.empty() ? "" : ":") + std::to_string(count);
  return text;
}

std::vector<std::int32_t> allocate_batch(const ProfileBatchInput& input, std::int64_t size,
                                         Random& random) {
  std::vector<double> work(input.samples.front().size());
  for (std::int64_t i = 0; i < size; ++i) {
    const auto& sample = input.samples[random.below(input.samples.size())];
    for (std::size_t m = 0; m < work.size(); ++m) work[m] += sample[m];
  }
  return proportional_allocation(work, input.devices / input.dp);
}

}  // namespace

std::vector<std::int32_t> proportional_allocation(const std::vector<double>& work,
                                                  std::int32_t devices) {
  double total = 0;
  for (const double ms : work) total += ms;
  std::vector<double> share;
  std::vector<std::int32_t> allocation;
  std::int32_t used = 0;
  for (const double ms : work) {
    share.push_back(total > 0 ? ms / total * devices
                              : static_cast<double>(devices) / static_cast<double>(work.size()));
    allocation.push_back(std::max(1, static_cast<std::int32_t>(share.back())));
    used += allocation.back();
  }
  for (; used != devices; used += used < devices ? 1 : -1) {
    // Give where most is lacking; take where most is too much, but never the last one.
    std::size_t chosen = work.size();
    for (std::size_t m = 0; m < work.size(); ++m) {
      if (used > devices && allocation[m] == 1) continue;
      const double lack = share[m] - allocation[m];
      const double chosen_lack = chosen < work.size() ? share[chosen] - allocation[chosen] : 0;
      if (chosen == work.size() || (used < devices ? lack > chosen_lack : lack < chosen_lack))
        chosen = m;
    }
    allocation[chosen] += used < devices ? 1 : -1;
  }
  return allocation;
}

std::int64_t validation_trials(double alpha, double p_error) {
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::ceil(std::log(alpha) / std::log1p(-p_error))));
}

Result<ProfileBatch> profile_batch(const ProfileBatchInput& input) {
  if (auto status = check_input(input); !status.ok()) return status.error();
  const auto modules = input.samples.front().size();
  if (static_cast<std::size_t>(input.devices / input.dp) < modules)
    return Error{Errc::infeasible,
                 "a replica of " + std::to_string(input.devices / input.dp) +
                     " devices cannot give one to each of " + std::to_string(modules) + " modules",
                 "devices", "use at least " + std::to_string(modules * std::size_t(input.dp))};
  const auto trials = validation_trials(input.alpha, input.p_error);
  Random random(input.seed);
  if (static_cast<double>(trials) * static_cast<double>(input.first_size) > kDrawsMax)
    return wrong("p_error",
                 std::to_string(trials) + " batches of " + std::to_string(input.first_size) +
                     " samples are more than can be drawn",
                 "raise p_error or alpha, or start from a smaller first_size");
  std::vector<std::int32_t> reference, other;
  double drawn = 0;
  std::int64_t size = input.first_size;
  for (; size <= std::max(kLargestBatch, input.first_size) && drawn <= kDrawsMax; size *= 2) {
    reference = allocate_batch(input, size, random);
    bool stable = true;
    for (std::int64_t t = 0; t < trials && stable; ++t) {
      drawn += static_cast<double>(size);
      other = allocate_batch(input, size, random);
      stable = other == reference;
    }
    if (stable) return ProfileBatch{size, trials, reference};
  }
  return Error{Errc::infeasible,
               "batches of " + std::to_string(size / 2) + " samples still allocate both " +
                   text_of(reference) + " and " + text_of(other),
               "samples",
               "either allocation is as good: choose one, or change the number of devices"};
}

Result<std::int64_t> smallest_batch(const ProfileBatchInput& input) {
  auto found = profile_batch(input);
  if (found.ok()) return found.value().b_min;
  if (found.error().code == Errc::infeasible) return std::int64_t{0};
  return std::move(found).error();
}

std::string batch_warning(std::int64_t global_batch, std::int64_t b_min) {
  if (b_min <= global_batch) return {};
  return "a batch of " + std::to_string(global_batch) +
         " samples does not have the data's mix of work; from " + std::to_string(b_min) +
         " on it has (train.global_batch_size)";
}

}  // namespace troupe::scheduler
