// Samples to replicas, microbatches and buckets.

#include "app/solve/balancing_problems.hpp"
#include "balancer/microbatches/hierarchical.hpp"
#include "balancer/microbatches/partition_ilp.hpp"
#include "balancer/microbatches/policies.hpp"
#include "balancer/ranks/replica_assignment.hpp"

namespace troupe::app {

namespace {

constexpr const char* kSamplesSchema =
    "samples: [{encoder_ms: number >= 0, llm_ms: number >= 0}...], milliseconds\n";

Result<Json> solve_replicas(const Json& input) {
  Reader in(input, "input");
  in.only({"samples", "speeds"});
  const auto samples = read_workloads(in);
  const auto speeds = in.numbers("speeds", 0, kTimeMax);
  if (!in.ok()) return in.error();
  const auto [replicas, elapsed_ms] =
      timed([&] { return balancer::assign_replicas(samples, speeds); });
  if (!replicas.ok()) return replicas.error();
  return Json{{"replicas", replicas.value()}, {"compute_ms", elapsed_ms}};
}

Result<Json> solve_hierarchical(const Json& input) {
  Reader in(input, "input");
  in.only({"samples", "microbatches", "deferral", "llm_cap", "policy", "seed"});
  const auto samples = read_workloads(in);
  balancer::PolicyOptions options;
  options.microbatches = in.integer("microbatches", 1, balancer::kGroupCountMax);
  const bool deferral = in.boolean_or("deferral", true);
  const auto policy = in.text_or("policy", deferral ? "deferral" : "hierarchical");
  options.seed = static_cast<std::uint64_t>(in.integer_or("seed", 0, 0, INT64_MAX));
  if (in.has("llm_cap")) options.llm_cap_ms = in.number("llm_cap", 0, kTimeMax);
  if (!in.ok()) return in.error();
  const auto [planned, elapsed_ms] =
      timed([&] { return balancer::assign_microbatches(policy, samples, options); });
  if (!planned.ok()) return planned.error();
  const auto& plan = planned.value();
  std::vector<bool> has_rows;
  for (const auto& sample : samples) has_rows.push_back(sample.encoder_ms > 0);
  return Json{{"effective_microbatches", plan.encoder.size()},
              {"encoder_microbatches", plan.encoder},
              {"llm_microbatches", plan.llm},
              {"parts", balancer::part_of(plan, has_rows)},
              {"deferred", plan.deferred},
              {"pairs", plan.pairs},
              {"compute_ms", elapsed_ms}};
}

Result<Json> solve_ilp_partition(const Json& input) {
  Reader in(input, "input");
  in.only({"samples", "buckets", "time_limit_ms", "method"});
  const auto samples = read_workloads(in);
  balancer::PartitionOptions options;
  options.bucket_count = in.integer("buckets", 1, balancer::kGroupCountMax);
  options.time_limit_ms = in.number_or("time_limit_ms", 100, kTimeMin, kTimeMax);
  const auto method = in.text_or("method", "auto");
  if (!in.ok()) return in.error();
  const auto known = balancer::partition_method_from(method);
  if (!known.ok()) return known.error();
  options.method = known.value();
  const auto [found, elapsed_ms] = timed([&] { return balancer::partition(samples, options); });
  if (!found.ok()) return found.error();
  Json output{{"buckets", found.value().buckets},
              {"max_ms", found.value().max_ms},
              {"lower_bound_ms", found.value().lower_bound_ms},
              {"method", found.value().method},
              {"compute_ms", elapsed_ms}};
  if (options.method == balancer::PartitionMethod::ilp && found.value().method != "ilp")
    output["note"] =
        "the integer program gave nothing better within its time and size; this is "
        "longest first";
  return output;
}

}  // namespace

std::vector<Problem> microbatch_problems() {
  const std::string samples = kSamplesSchema;
  return {
      {"replicas", "spreads a global batch over replicas of different speed (Entrain 4.3)",
       samples + "speeds: [number > 0...], work per millisecond of each replica", solve_replicas},
      {"hierarchical", "microbatches of one replica with deferral of LLM work (Entrain 4.5)",
       samples + "microbatches: integer >= 1, the user's K\n"
                 "deferral: true or false, default true\n"
                 "llm_cap: number > 0?, largest LLM load of a microbatch in milliseconds\n"
                 "policy: string?, any balancing policy; default `deferral` or `hierarchical`\n"
                 "seed: integer >= 0?, for policies that draw",
       solve_hierarchical},
      {"ilp-partition", "buckets with the least largest encoder or LLM sum (DFLOP 3.4)",
       samples + "buckets: integer >= 1\n"
                 "time_limit_ms: number > 0, default 100, for the integer program\n"
                 "method: `auto` (default), `ilp`, `lpt` or `search`",
       solve_ilp_partition},
  };
}

}  // namespace troupe::app
