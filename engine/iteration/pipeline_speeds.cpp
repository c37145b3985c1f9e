#include "engine/iteration/pipeline_speeds.hpp"

#include <algorithm>
#include <utility>

#include "balancer/ranks/replica_assignment.hpp"
#include "scheduler/iteration/distribute.hpp"

namespace troupe::engine {

namespace {

// What a batch weighs against the next one: a device that slows down shows after about ten.
constexpr double kMemory = 0.9;

// Exchanges that are looked at: milliseconds, beside a batch that takes seconds.
constexpr std::int64_t kEvaluationsMax = 100'000;

std::vector<std::int64_t> even(std::int64_t size, std::size_t pipelines) {
  const auto count = static_cast<std::int64_t>(pipelines);
  std::vector<std::int64_t> counts(pipelines, size / count);
  for (std::int64_t p = 0; p < size % count; ++p) ++counts[static_cast<std::size_t>(p)];
  return counts;
}

balancer::SampleGroups runs_of(const std::vector<std::int64_t>& counts) {
  balancer::SampleGroups groups;
  std::int32_t next = 0;
  for (const std::int64_t count : counts) {
    auto& own = groups.emplace_back();
    for (std::int64_t i = 0; i < count; ++i) own.push_back(next++);
  }
  return groups;
}

balancer::SampleGroups by_count(std::int64_t size, const std::vector<double>& ms_per_work) {
  if (size >= std::ssize(ms_per_work))
    if (auto counts = scheduler::distribute(ms_per_work, size, 1); counts.ok())
      return runs_of(counts.value());
  return runs_of(even(size, ms_per_work.size()));
}

/// A pipeline without a sample would never be measured again: it gets the lightest of whoever has
/// most samples.
void leave_none_idle(balancer::SampleGroups& groups, std::span<const balancer::Workload> samples) {
  const auto weight = [&](std::int32_t s) {
    const auto& sample = samples[static_cast<std::size_t>(s)];
    return sample.encoder_ms + sample.llm_ms;
  };
  for (auto& idle : groups) {
    if (!idle.empty()) continue;
    auto& most = *std::max_element(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
      return a.size() < b.size();
    });
    if (most.size() < 2) return;
    const auto lightest = std::min_element(most.begin(), most.end(),
                                           [&](auto a, auto b) { return weight(a) < weight(b); });
    idle.push_back(*lightest);
    most.erase(lightest);
  }
}

}  // namespace

std::vector<double> PipelineSpeeds::speeds(double Share::*work_ms, double Share::*busy_ms) const {
  std::vector<double> found(pipelines_, 1);
  for (std::size_t p = 0; p < sums_.size(); ++p)
    if (sums_[p].*work_ms > 0) found[p] = sums_[p].*busy_ms / sums_[p].*work_ms;
  return found;
}

void PipelineSpeeds::add(const std::vector<Share>& shares, double Share::*work_ms,
                         double Share::*busy_ms) {
  for (const Share& share : shares)
    if (!(share.*work_ms > 0 && share.*busy_ms > 0)) return;
  sums_.resize(pipelines_);
  for (std::size_t p = 0; p < pipelines_; ++p)
    for (const auto part : {work_ms, busy_ms})
      sums_[p].*part = kMemory * sums_[p].*part + shares[p].*part;
}

void PipelineSpeeds::note(const std::vector<Share>& shares, std::vector<double> stage_ms) {
  stage_ms_ = std::move(stage_ms);
  add(shares, &Share::work_ms, &Share::busy_ms);
  add(shares, &Share::llm_work_ms, &Share::llm_busy_ms);
}

void PipelineSpeeds::restore(const std::vector<DealNote>& notes) {
  if (!notes.empty() && notes.back().shares.size() == pipelines_) sums_ = notes.back().shares;
}

Result<balancer::SampleGroups> deal_samples(const std::string& rule,
                                            std::span<const balancer::Workload> samples,
                                            const std::vector<double>& ms_per_work) {
  if (rule == "count") return by_count(std::ssize(samples), ms_per_work);
  std::vector<double> speeds;
  for (const double ms : ms_per_work) speeds.push_back(1 / ms);
  auto groups = balancer::assign_replicas_search(samples, speeds, kEvaluationsMax);
  if (groups.ok()) leave_none_idle(groups.value(), samples);
  return groups;
}

}  // namespace troupe::engine
