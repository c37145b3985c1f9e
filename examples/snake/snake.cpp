// A microbatch policy: samples are dealt to the microbatches forth and back, the heaviest first, so
// that who gets the heaviest of one round gets the lightest of the next.

#include <algorithm>
#include <functional>
#include <numeric>

#include "runtime/plugins/entry_point.hpp"
#include "runtime/policies/registry.hpp"

namespace {

using namespace troupe;
using namespace troupe::policies;

Result<MicrobatchPlan> plan(std::span<const Workload> workloads, const PolicyOptions& options) {
  std::vector<std::int32_t> order(workloads.size());
  std::iota(order.begin(), order.end(), 0);
  const auto work_ms = [&](std::int32_t sample) {
    return workloads[std::size_t(sample)].encoder_ms + workloads[std::size_t(sample)].llm_ms;
  };
  std::ranges::stable_sort(order, std::greater{}, work_ms);

  MicrobatchPlan made;
  made.llm.resize(std::size_t(options.microbatches));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto round = i / made.llm.size(), place = i % made.llm.size();
    made.llm[round % 2 == 0 ? place : made.llm.size() - 1 - place].push_back(order[i]);
  }
  made.encoder = made.llm;  // Nothing is deferred: both sides run the same samples.
  return made;
}

Status register_all() { return register_policy({"snake", plan}); }

}  // namespace

TROUPE_PLUGIN(register_all)
