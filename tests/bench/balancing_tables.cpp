#include "tests/bench/balancing_tables.hpp"

#include <cstdio>
#include <map>

#include "balancer/loads/distributions.hpp"
#include "balancer/microbatches/hierarchical.hpp"
#include "balancer/microbatches/policies.hpp"
#include "tests/bench/balancing_data.hpp"
#include "tests/bench/measure.hpp"

namespace troupe::bench {

namespace {

using balancer::Workload;

constexpr std::int64_t kMicrobatches = 16;
constexpr std::uint64_t kSeeds = 8;

// Mean over the batches of one policy: deviations in percent of the mean, largest over mean.
struct Evenness {
  double encoder_std = 0;
  double llm_std = 0;
  double llm_max = 0;
  double microbatches = 0;
};

Evenness evenness(const DataSet& set, const std::string& policy) {
  Evenness mean;
  const double share = 1 / static_cast<double>(set.batches.size());
  for (std::size_t b = 0; b < set.batches.size(); ++b) {
    const auto& samples = set.batches[b];
    balancer::PolicyOptions options{.microbatches = kMicrobatches};
    options.seed = b;
    const auto plan = balancer::assign_microbatches(policy, samples, options).value();
    const auto encoder = encoder_spread(group_loads(samples, plan.encoder));
    const auto llm = llm_spread(group_loads(samples, plan.llm));
    mean.encoder_std += share * 100 * encoder.std_ms / encoder.mean_ms;
    mean.llm_std += share * 100 * llm.std_ms / llm.mean_ms;
    mean.llm_max += share * llm.max_ms / llm.mean_ms;
    mean.microbatches += share * static_cast<double>(plan.llm.size());
  }
  return mean;
}

bool none_above_half(const DataSet& set) {
  for (const auto& samples : set.batches) {
    const auto mean = total(samples).llm_ms / kMicrobatches;
    for (const auto& sample : samples)
      if (sample.llm_ms > mean / 2) return false;
  }
  return true;
}

// How often deferral ended above the largest LLM load before it.
int raised_maxima(const DataSet& set) {
  int raised = 0;
  for (const auto& samples : set.batches) {
    const auto largest = [&](bool deferral) {
      const auto plan =
          assign_hierarchical(samples, {.microbatches = kMicrobatches, .deferral = deferral});
      return llm_spread(group_loads(samples, plan.value().llm)).max_ms;
    };
    raised += largest(true) > largest(false) * (1 + 1e-12);
  }
  return raised;
}

void print_table(const DataSet& set, const std::map<std::string, Evenness>& rows,
                 std::size_t per_microbatch) {
  std::fprintf(stderr, "\n%s, %zu samples per microbatch, K = %lld\n", set.name.c_str(),
               per_microbatch, static_cast<long long>(kMicrobatches));
  std::fprintf(stderr, "%-20s %12s %12s %12s %6s\n", "policy", "encoder std", "LLM std",
               "LLM max/mean", "K");
  for (const auto& policy : balancer::policies()) {
    const auto& row = rows.at(policy.name);
    std::fprintf(stderr, "%-20s %11.2f%% %11.2f%% %12.4f %6.1f\n", policy.name.c_str(),
                 row.encoder_std, row.llm_std, row.llm_max, row.microbatches);
  }
}

// Every policy's deviations, in percent of the mean.
void print_deviations(const DataSet& set, const std::map<std::string, Evenness>& rows,
                      std::size_t per_microbatch) {
  const std::string size = set.name + ", " + std::to_string(per_microbatch) + " per microbatch";
  for (const auto& policy : balancer::policies()) {
    const auto& row = rows.at(policy.name);
    print("balance." + policy.name + ".encoder_std", row.encoder_std, "%", std::nullopt, size);
    print("balance." + policy.name + ".llm_std", row.llm_std, "%", std::nullopt, size);
  }
}

void print_claims(const DataSet& set, const std::map<std::string, Evenness>& rows,
                  std::size_t per_microbatch) {
  const std::string size = set.name + ", " + std::to_string(per_microbatch) + " per microbatch";
  const double random = rows.at("random").llm_std;
  const bool fine = per_microbatch >= 16 && none_above_half(set);
  print("balance.deferral_llm_std_over_random", rows.at("deferral").llm_std / random, "ratio",
        fine ? std::optional(0.5) : std::nullopt, size);
  print("balance.deferral_raised_maxima", raised_maxima(set), "batches", 0, size);
  for (const char* policy :
       {"deferral-exchange", "deferral-chain", "dflop-search", "balanced-chain"})
    print("balance." + std::string(policy) + "_llm_std_over_random",
          rows.at(policy).llm_std / random, "ratio", std::nullopt, size);
  print("balance.deferral_encoder_std_over_random",
        rows.at("deferral").encoder_std / rows.at("random").encoder_std, "ratio", std::nullopt,
        size);
}

}  // namespace

void print_balance(bool tables) {
  for (const std::size_t per_microbatch : {4, 16, 32})
    for (const auto& set : data_sets(per_microbatch * kMicrobatches, kSeeds)) {
      std::map<std::string, Evenness> rows;
      for (const auto& policy : balancer::policies())
        rows[policy.name] = evenness(set, policy.name);
      if (per_microbatch == 16) print_deviations(set, rows, per_microbatch);
      if (tables) print_table(set, rows, per_microbatch);
      print_claims(set, rows, per_microbatch);
    }
}

}  // namespace troupe::bench
