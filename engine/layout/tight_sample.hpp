// Which sample of a batch has least room on a layout: what whoever has to mend a batch without a
// plan wants to know.
//
// Pure.

#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "engine/setup/job_setup.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"

namespace troupe::engine {

/// A sample by itself, on the device where it fills most of the room.
struct TightSample {
  std::size_t sample = 0;  ///< Index.
  double bytes = 0;        ///< Of activations that it keeps there.
  double room = 0;         ///< Bytes that a microbatch of the stage may keep there, beside state.
  DeviceSlot device = {};

  double filled() const;  ///< Of the room; above 1: it fits into no microbatch.
};

/// Of these samples the one that fills most of the room of that pipeline where it fills least, the
/// first of equals. Rooms are those of `check_batch_memory`; encoders that share samples out among
/// pipelines or replicas are not looked at. None: nothing is known of costs or memory, or nothing
/// is kept. Cost: O(samples x stages).
std::optional<TightSample> tightest_sample(const JobSetup& setup, const ParallelPlan& plan,
                                           std::span<const SampleShape> samples);

/// Why there is no plan for a batch, with the sample that has least room named, its tokens and
/// bytes, and the largest room there is for it; where it is too large by itself the fix says how
/// to leave it out. Unchanged where no sample is known to be tight.
Error with_tight_sample(Error why, const JobSetup& setup, const ParallelPlan& plan,
                        std::span<const SampleShape> samples);

}  // namespace troupe::engine
