// Whether gradients are added up by messages or by calls to NCCL, where a job leaves that open
// (`cluster.sums = "auto"`).
//
// Pure. What is known of machines is asked by others (engine/execution/call_facts.hpp).

#pragma once

#include <cstdint>
#include <string>

#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/simulate/predicted_costs.hpp"

namespace troupe::scheduler {

/// What is known, before a job begins, of who would call NCCL.
struct CallFacts {
  std::string device = "cpu";        ///< What the devices are called.
  bool has_streams = false;          ///< NCCL can add up in the memory of devices of that name.
  std::string why_no_library = {};   ///< What keeps NCCL from being loaded; empty: nothing does.
  std::int32_t nodes_elsewhere = 0;  ///< On machines of which nothing is known before they join.
  std::int32_t devices = 1;          ///< Of the job, on this machine.
  std::int32_t devices_there = 1;    ///< That it has; the job's are counted round.
  bool over_host = false;            ///< Messages take bytes from and to devices by host memory.
};

/// Why the job's devices cannot call NCCL, or may not be able to; empty: they can. One reason: of
/// the devices, the library, the nodes elsewhere, the devices that would be one, in this order.
/// `key`: of the job, that leaves it open.
std::string why_no_calls(const CallFacts& facts, const std::string& key = "cluster.sums");

struct SumChoice {
  bool calls = false;  ///< To NCCL; false: messages.
  std::string why;     ///< A sentence without its end.
};

/// NCCL where all devices can call it, some do in this plan, and the sums of a step are predicted
/// to end no later than by messages; else messages, which take the same links and, `over_host`, the
/// way to host memory and back. `calls`: what a call would be, `nccl` or `nccl_chain`.
/// REQUIRES: `is_by_nccl(calls)`.
///
/// Errors: as `plan_iteration` and `simulate`.
Result<SumChoice> choose_sums(const CallFacts& facts, const ParallelPlan& plan, SumOrder calls,
                              const PredictionOptions& prediction);

}  // namespace troupe::scheduler
