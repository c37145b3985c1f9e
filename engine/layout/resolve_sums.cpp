#include "engine/layout/resolve_sums.hpp"

#include <utility>

#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"

namespace troupe::engine {

ResolvedSums resolved_sums(scheduler::SumChoice choice) {
  if (choice.calls) return {"nccl", {"sums by NCCL", std::move(choice.why)}};
  return {"messages", {"sums by messages", std::move(choice.why)}};
}

Result<ResolvedSums> resolve_sums(const job::Job& job, const scheduler::CallFacts& facts,
                                  const std::string& kept) {
  const std::string as_before = "the run that goes on has them";
  if (kept == "messages") return resolved_sums({false, as_before});
  if (auto why = scheduler::why_no_calls(facts); !why.empty())
    return resolved_sums({false, std::move(why)});
  if (!kept.empty()) return ResolvedSums{kept, {"sums by NCCL", as_before}};
  job::Job by_messages = job;
  by_messages.cluster.sums = "messages";
  const auto setup = prepare(by_messages);
  if (!setup.ok()) return setup.error();
  const auto profile = profile_at_hand(setup.value());
  if (!profile.ok()) return profile.error();
  const auto layout = choose_layout(setup.value());
  if (!layout.ok()) return layout.error();
  scheduler::PredictionOptions prediction;
  prediction.dtype = job.train.dtype;
  prediction.speeds = speeds_for(job.cluster, profile.value().speeds);
  auto choice =
      scheduler::choose_sums(facts, layout.value().plan, calls_in(job.train.dtype), prediction);
  if (!choice.ok()) return choice.error();
  return resolved_sums(std::move(choice).value());
}

}  // namespace troupe::engine
