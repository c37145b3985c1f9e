#include "scheduler/cost/profile_verdict.hpp"

#include <algorithm>

#include "scheduler/cost/sample_costs.hpp"

namespace troupe::scheduler {

namespace {

std::string percent(double share) {
  return std::to_string(static_cast<int>(100 * share + 0.5)) + " %";
}

/// Weight of a kind: the time it takes in a mean sample, or the same for all.
double weight_of(const std::string& kind, const MeanSample& sample) {
  if (sample.total_ms <= 0) return 1;
  const auto found = sample.kind_ms.find(kind);
  return found == sample.kind_ms.end() ? 0 : found->second;
}

bool is_computed(const CostModel& costs) {
  for (std::size_t m = 0; m < costs.graph().modules.size(); ++m)
    if (costs.origin(ModuleId{m}) == CostOrigin::computed) return true;
  return false;
}

}  // namespace

Result<MeanSample> mean_sample(const CostModel& costs, std::span<const SampleShape> samples) {
  const ModelGraph& graph = costs.graph();
  MeanSample mean;
  mean.module_ms.resize(graph.modules.size());
  if (samples.empty()) return mean;
  const auto sums = SampleSums(costs, samples).at({});
  if (!sums.ok()) return sums.error();
  std::vector<AlikeLayers> layers;
  for (std::size_t m = 0; m < graph.modules.size(); ++m)
    for (std::int32_t l = 0; l < static_cast<std::int32_t>(graph.modules[m].layers.size()); ++l) {
      layers.clear();
      sums.value().add({ModuleId{m}, {l, l + 1}}, {}, layers);
      double ms = 0;
      for (std::size_t s = 0; s < samples.size(); ++s) {
        const PassCosts cost = sums.value().sample(layers, s);
        ms += cost.forward + cost.input_grad + cost.weight_grad;
      }
      ms /= static_cast<double>(samples.size());
      mean.module_ms[m] += ms;
      mean.kind_ms[costs.kind_name({ModuleId{m}, l})] += ms;
      mean.total_ms += ms;
    }
  return mean;
}

ProfileVerdict profile_verdict(const CostModel& costs, const MeanSample& sample,
                               const ProfileDoubts& doubts) {
  if (is_computed(costs))
    return {"computed",
            "from documented peak numbers: compares layouts, foretells no times; measured on the "
            "machine itself it would",
            std::nullopt};
  double sum = 0, weights = 0, most = 0;
  const KindError* weakest = nullptr;
  const auto errors = costs.errors();
  for (const auto& error : errors) {
    if (error.parallelism != Parallelism{} || error.left_out.mean <= 0) continue;
    const double weight = weight_of(error.kind, sample);
    sum += weight * error.left_out.mean;
    weights += weight;
    if (weakest == nullptr || weight * error.left_out.mean > most) weakest = &error;
    most = std::max(most, weight * error.left_out.mean);
  }
  if (weights <= 0)
    return {"unknown",
            "too few sizes were measured to tell; give it more time (--budget 60 --force)",
            std::nullopt};
  const double expected = sum / weights;
  ProfileVerdict verdict{"good", {}, expected};
  verdict.why = std::string(sample.total_ms > 0 ? "the time of a mean sample is" : "times are") +
                " right within about " + percent(expected) + "; most of the error is in " +
                weakest->kind + " (" + weakest->curve + ")";
  if (expected > kGoodError) verdict.word = expected > kFairError ? "poor" : "fair";
  if (verdict.word == "poor") verdict.why += "; more time makes it better: --budget 60 --force";
  if (doubts.disturbed_share > kNoisyShare || doubts.warned) {
    verdict.word = "noisy";
    verdict.why += doubts.warned ? "; but see the warning"
                                 : "; but " + percent(doubts.disturbed_share) +
                                       " of the runs were disturbed: --force on a quiet machine";
  }
  return verdict;
}

}  // namespace troupe::scheduler
