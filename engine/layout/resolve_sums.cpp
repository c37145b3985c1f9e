#include "engine/layout/resolve_sums.hpp"

#include <utility>

namespace troupe::engine {

namespace {

scheduler::LayoutReason settle_on(JobSetup& setup, const std::string& sums, std::string why) {
  use_sums(setup, sums);
  return {sums == "messages" ? "sums by messages" : "sums by NCCL", std::move(why)};
}

}  // namespace

bool leaves_sums_open(const job::Job& job) { return job.cluster.sums == "auto"; }

std::optional<scheduler::LayoutReason> settle_sums(JobSetup& setup,
                                                   const scheduler::CallFacts& facts,
                                                   const std::string& kept) {
  const std::string as_before = "the run that goes on has them";
  if (kept == "messages") return settle_on(setup, kept, as_before);
  if (auto why = scheduler::why_no_calls(facts); !why.empty())
    return settle_on(setup, "messages", std::move(why));
  if (!kept.empty()) return settle_on(setup, kept, as_before);
  return std::nullopt;
}

Result<scheduler::LayoutReason> choose_sums(JobSetup& setup, const scheduler::CallFacts& facts,
                                            const ParallelPlan& by_messages,
                                            const scheduler::PredictionOptions& prediction) {
  auto choice =
      scheduler::choose_sums(facts, by_messages, calls_in(setup.job.train.dtype), prediction);
  if (!choice.ok()) return std::move(choice).error();
  return settle_on(setup, choice.value().calls ? "nccl" : "messages",
                   std::move(choice.value().why));
}

scheduler::LayoutReason settle_rows(JobSetup& setup, const scheduler::CallFacts& facts) {
  std::string why = scheduler::why_no_calls(facts, "cluster.rows");
  const bool calls = why.empty();
  setup.job.cluster.rows = calls ? "nccl" : "messages";
  if (calls) return {"rows by NCCL", "all devices can call it, without a way by host memory"};
  return {"rows by messages", std::move(why)};
}

}  // namespace troupe::engine
