#include "runtime/policies/registry.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/plugins/user_calls.hpp"
#include "runtime/vocabulary/named_list.hpp"
#include "runtime/vocabulary/user_code.hpp"

namespace troupe::policies {

namespace {

NamedList<Policy>& added() {
  static NamedList<Policy> all;
  return all;
}

const balancer::PolicyInfo* built_in(std::string_view name) {
  const auto& all = balancer::policies();
  const auto found = std::ranges::find(all, name, &balancer::PolicyInfo::name);
  return found == all.end() ? nullptr : &*found;
}

Error blamed(const std::string& policy, const std::string& what, const std::string& fix) {
  return {Errc::invalid_argument, "policy '" + policy + "' " + what, "balancer.policy", fix};
}

/// Where each sample stands on one side; what is wrong with the side, where that cannot be said.
Result<std::vector<std::int32_t>> places_of(const balancer::SampleGroups& side,
                                            const std::string& name, std::size_t samples) {
  const auto wrong = [&](std::int64_t sample, const std::string& what) {
    return Error{
        Errc::invalid_argument, "has sample " + std::to_string(sample) + " " + what, {}, {}};
  };
  std::vector<std::int32_t> places(samples, -1);
  for (std::size_t m = 0; m < side.size(); ++m)
    for (const std::int32_t sample : side[m]) {
      const std::string where = name + " microbatch " + std::to_string(m);
      if (sample < 0 || static_cast<std::size_t>(sample) >= samples)
        return wrong(sample, "in " + where + ", of " + std::to_string(samples));
      auto& place = places[static_cast<std::size_t>(sample)];
      if (place >= 0)
        return wrong(sample, "in " + where + " and in microbatch " + std::to_string(place));
      place = static_cast<std::int32_t>(m);
    }
  const auto left_out = std::ranges::find(places, -1);
  if (left_out != places.end())
    return wrong(left_out - places.begin(), "in no " + name + " microbatch");
  return places;
}

/// The plan with all that follows from its two sides.
Result<MicrobatchPlan> completed(MicrobatchPlan plan, std::size_t samples,
                                 const PolicyOptions& options) {
  const auto wrong = [](std::string what) {
    return Error{Errc::invalid_argument, std::move(what), {}, {}};
  };
  const auto count = plan.llm.size();
  if (plan.encoder.size() != count)
    return wrong("has " + std::to_string(plan.encoder.size()) + " encoder microbatches and " +
                 std::to_string(count) + " of the llm");
  if (count == 0 || std::cmp_greater(count, options.microbatches))
    return wrong("has " + std::to_string(count) + " microbatches, where 1 to " +
                 std::to_string(options.microbatches) + " are asked for");
  const auto encoder = places_of(plan.encoder, "encoder", samples);
  if (!encoder.ok()) return encoder.error();
  const auto llm = places_of(plan.llm, "llm", samples);
  if (!llm.ok()) return llm.error();
  plan.deferred.clear();
  std::set<std::pair<std::int32_t, std::int32_t>> pairs;
  for (std::size_t s = 0; s < samples; ++s) {
    const auto from = encoder.value()[s], to = llm.value()[s];
    if (from == to) continue;
    plan.deferred.push_back(static_cast<std::int32_t>(s));
    pairs.insert({from, to});
  }
  plan.pairs.assign(pairs.begin(), pairs.end());
  for (auto* side : {&plan.encoder, &plan.llm})
    for (auto& group : *side) std::ranges::sort(group);
  return plan;
}

}  // namespace

Status register_policy(Policy policy) {
  const std::string name = policy.name;
  if (!is_list_name(name))
    return blamed(name, "has no name for a job file", "use small letters, digits, `-` and `_`");
  if (!policy.plan) return blamed(name, "has no `plan`", "set it");
  if (built_in(name) != nullptr || !added().add(std::move(policy)))
    return blamed(name, "is there already", "choose another name, or register it once");
  return Done{};
}

std::vector<std::string> policy_names() {
  auto names = balancer::policy_names();
  for (const Policy* policy : added().all()) names.push_back(policy->name);
  return names;
}

bool searches(std::string_view policy) {
  if (const auto* info = built_in(policy)) return info->searches;
  const Policy* own = added().find(policy);
  return own != nullptr && own->searches;
}

Result<MicrobatchPlan> run_policy(std::string_view policy, std::span<const Workload> workloads,
                                  const PolicyOptions& options) {
  const Policy* own = added().find(policy);
  if (own == nullptr) return balancer::assign_microbatches(policy, workloads, options);
  if (auto fine = balancer::check_workloads(workloads); !fine.ok()) return fine.error();
  if (auto fine = balancer::check_group_count(options.microbatches, "microbatches"); !fine.ok())
    return fine.error();
  auto plan = call_guarded(Errc::invalid_argument, [&] {
    const plugins::CallingUser call("`plan` of policy '" + own->name + "'");
    return own->plan(workloads, options);
  });
  if (plan.ok()) plan = completed(std::move(plan).value(), workloads.size(), options);
  if (!plan.ok()) {
    Error fault = plan.error();
    fault.message = "policy '" + own->name + "' " + fault.message;
    fault.where = "balancer.policy";
    if (fault.fix.empty()) fault.fix = "correct the policy, or choose another";
    return fault;
  }
  if (auto fits = balancer::check_llm_cap(policy, workloads, plan.value(), options); !fits.ok())
    return fits.error();
  return plan;
}

}  // namespace troupe::policies
