// A microbatch policy: samples are dealt to the microbatches forth and back, the heaviest first, so
// that who gets the heaviest of one round gets the lightest of the next. What the llm has no memory
// for where its turn is goes elsewhere. Where the llm's shares are uneven all the same, samples
// wait for its next microbatch (deferral).

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "runtime/plugins/entry_point.hpp"
#include "runtime/policies/registry.hpp"

namespace {

using namespace troupe;
using namespace troupe::policies;

using Group = std::vector<std::int32_t>;

/// Of two microbatches in a row the first one's lightest sample runs with the second in the llm,
/// where that makes the larger of both smaller. The encoder's rows of it are held so long.
void defer(std::vector<Group>& llm, std::span<const Workload> workloads) {
  const auto llm_ms = [&](std::int32_t sample) { return workloads[std::size_t(sample)].llm_ms; };
  const auto load_ms = [&](const Group& group) {
    double sum = 0;
    for (const std::int32_t sample : group) sum += llm_ms(sample);
    return sum;
  };
  for (std::size_t m = 0; m + 1 < llm.size(); ++m) {
    if (llm[m].size() < 2) continue;  // Nothing would be left.
    const auto lightest = std::ranges::min_element(llm[m], {}, llm_ms);
    if (load_ms(llm[m + 1]) + llm_ms(*lightest) >= load_ms(llm[m])) continue;
    llm[m + 1].push_back(*lightest);
    llm[m].erase(lightest);
  }
}

Result<MicrobatchPlan> plan(std::span<const Workload> workloads, const PolicyOptions& options) {
  std::vector<std::int32_t> order(workloads.size());
  std::iota(order.begin(), order.end(), 0);
  const auto work_ms = [&](std::int32_t sample) {
    return workloads[std::size_t(sample)].encoder_ms + workloads[std::size_t(sample)].llm_ms;
  };
  std::ranges::stable_sort(order, std::greater{}, work_ms);

  // Above it the job ends: it stands for the memory of the llm's devices.
  const double cap_ms = options.llm_cap_ms.value_or(std::numeric_limits<double>::infinity());
  const auto count = std::size_t(options.microbatches);
  MicrobatchPlan made;
  made.llm.resize(count);
  std::vector<double> taken_ms(count);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto round = i / count, place = i % count;
    const double own_ms = workloads[std::size_t(order[i])].llm_ms;
    std::size_t turn = round % 2 == 0 ? place : count - 1 - place;
    if (taken_ms[turn] + own_ms > cap_ms)
      turn = std::size_t(std::ranges::min_element(taken_ms) - taken_ms.begin());
    made.llm[turn].push_back(order[i]);
    taken_ms[turn] += own_ms;
  }
  made.encoder = made.llm;
  defer(made.llm, workloads);
  return made;
}

Status register_all() { return register_policy({"snake", plan}); }

}  // namespace

TROUPE_PLUGIN(register_all)
