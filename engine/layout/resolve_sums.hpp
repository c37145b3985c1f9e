// What `cluster.sums = "auto"` means for a job, and `cluster.rows`, put into its setup before it is
// planned for good, so that head, nodes, reference and simulator all read the same word, and no
// plan says auto.
//
// Deterministic: job, data, profile and what is known of the machines decide.

#pragma once

#include <optional>
#include <string>

#include "engine/setup/job_setup.hpp"
#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/simulate/sum_choice.hpp"

namespace troupe::engine {

bool leaves_sums_open(const job::Job& job);

/// Settles, by `use_sums`, what needs no layout, and says why: `sums by NCCL` or `by messages`.
/// None: a layout decides (`choose_sums`), and the setup stays as it is.
///
/// `kept`: the `cluster.sums` of a run that goes on, empty of a job that begins. It stays, so that
/// what is known of the run's bits stays true; where devices cannot call NCCL any more messages
/// take over, as where a user says so.
std::optional<scheduler::LayoutReason> settle_sums(JobSetup& setup,
                                                   const scheduler::CallFacts& facts,
                                                   const std::string& kept);

/// Settles the rest by `scheduler::choose_sums`. `by_messages`: the layout of the setup as it is.
/// Where its sums go by NCCL from then on, another one may be better.
///
/// Errors: as `scheduler::choose_sums`; the setup stays as it is.
Result<scheduler::LayoutReason> choose_sums(JobSetup& setup, const scheduler::CallFacts& facts,
                                            const ParallelPlan& by_messages,
                                            const scheduler::PredictionOptions& prediction);

/// Settles `cluster.rows = "auto"`, and says why: `rows by NCCL` where nothing keeps the devices
/// from calling it, or `by messages`. The bits are the same, so that a run may go on the other way.
scheduler::LayoutReason settle_rows(JobSetup& setup, const scheduler::CallFacts& facts);

}  // namespace troupe::engine
