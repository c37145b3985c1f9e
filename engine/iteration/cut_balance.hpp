// What a cut does to balance and to the rows that wait. Pure.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balancer/microbatches/policies.hpp"
#include "engine/iteration/batch_work.hpp"
#include "engine/iteration/prediction.hpp"
#include "runtime/vocabulary/sample_shape.hpp"

namespace troupe::engine {

/// The weights of some samples, in their order.
std::vector<balancer::Workload> pick(std::span<const balancer::Workload> all,
                                     std::span<const std::int32_t> samples);

/// Adds the cut of one llm replica's samples (`own`, ascending indices) to what is predicted of
/// the batch: its work to `total`, its imbalance beside that of `microbatches` in the order of
/// arrival, and what it defers.
void note_cut(std::span<const SampleShape> samples, const BatchWork& work,
              std::span<const std::int32_t> own, const balancer::MicrobatchPlan& plan,
              std::int64_t microbatches, balancer::Workload& total, Prediction& prediction);

}  // namespace troupe::engine
