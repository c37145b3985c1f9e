// What `cluster.sums = "auto"` means for a job. It is put in before the job is planned, so that
// head, nodes, reference and simulator all read the same word, and no plan says auto.
//
// Deterministic: job, data, profile and what is known of the machines decide.

#pragma once

#include <string>

#include "engine/setup/job_setup.hpp"
#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/simulate/sum_choice.hpp"

namespace troupe::engine {

struct ResolvedSums {
  std::string sums;                ///< As `cluster.sums` writes it; never auto.
  scheduler::LayoutReason reason;  ///< `sums by NCCL`, and why.
};

/// Chooses by `scheduler::choose_sums`, with the layout that the job would have by messages.
///
/// `kept`: the `cluster.sums` of a run that goes on, empty of a job that begins. It stays, so that
/// what is known of the run's bits stays true; where devices cannot call NCCL any more messages
/// take over, as where a user says so.
///
/// Errors: as `prepare`, `profile_at_hand`, `choose_layout` and `scheduler::choose_sums`.
Result<ResolvedSums> resolve_sums(const job::Job& job, const scheduler::CallFacts& facts,
                                  const std::string& kept);

/// What a choice means for a job.
ResolvedSums resolved_sums(scheduler::SumChoice choice);

}  // namespace troupe::engine
