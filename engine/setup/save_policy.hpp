// When a job saves by itself; the same for training and the reference runs.
//
// Pure.

#pragma once

#include <cstdint>

#include "runtime/job/job.hpp"

namespace troupe::engine {

/// Whether a checkpoint is due after `step`, `minutes` after the one before (or the start).
/// `is_last`: the job is complete.
inline bool save_is_due(const job::Checkpointing& wish, std::int64_t step, double minutes,
                        bool is_last) {
  if (wish.every_steps > 0 && step % wish.every_steps == 0) return true;
  if (wish.every_minutes > 0 && minutes >= wish.every_minutes) return true;
  return is_last && wish.is_regular();
}

}  // namespace troupe::engine
