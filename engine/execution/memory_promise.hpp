// What a plan promises of a device's memory, and what follows where more is used.

#pragma once

#include <string>

#include "runtime/job/job.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

struct MemoryPromise {
  Bytes device;  ///< What it may use (`cluster.device_memory_gib`); 0: nobody said.
  Bytes state;   ///< Of it parameters, gradients and optimizer, by the plan.

  bool is_given() const { return device > Bytes{}; }
};

/// Of one device of a layout. Pure.
MemoryPromise memory_promise(const job::Job& job, const ParallelPlan& plan, DeviceId device);

/// Predictions are within 5 % (tests/engine/memory.py); beyond this something is wrong.
inline constexpr double kPromiseSlack = 1.1;

/// Whether a device that holds these `activations` (rows and gradients that came for them
/// included) beside its state keeps the promise, but for `kPromiseSlack`. `where`: `in step 3 on
/// device 1`. Pure.
/// Errors: infeasible: it does not; with the plan's numbers and the fix.
Status check_promise(const MemoryPromise& promise, Bytes activations, const std::string& where);

/// The plan's numbers, for an error where memory runs out: ` (its plan has 3.0 GB ...)`. Empty
/// where nobody said what a device may use. Pure.
std::string promise_words(const MemoryPromise& promise);

/// What helps where memory runs out.
inline constexpr const char* kMemoryFix =
    "give the machine more memory, or the job smaller microbatches or more nodes";

/// The same beside a promise, whose key is another fix. `is_kept`: of an allocator that gives no
/// more than the promise (`limit_gpu_memory`); else the machine has less than it. Pure.
std::string memory_fix(const MemoryPromise& promise, bool is_kept);

/// An error that says that a device has no room (infeasible, without a fix): with the plan's
/// numbers and what helps. Any other one as it is. Pure.
Error with_promise(Error error, const MemoryPromise& promise);

/// Which share of each of `gpus` GPUs of `memory` each a process may use whose `devices` are dealt
/// to them in turn and may use `promised` each; at most 1. Pure.
double memory_share(Bytes promised, Bytes memory, int devices, int gpus);

/// Has LibTorch's allocator refuse what is beyond the promise of this process's devices, where they
/// are GPUs and a promise was given; what PYTORCH_CUDA_ALLOC_CONF says comes before. To be called
/// before CUDA's part of LibTorch is loaded, which reads it.
void limit_gpu_memory(const job::Cluster& cluster);

}  // namespace troupe::engine
