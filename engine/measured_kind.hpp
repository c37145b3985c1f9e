// What all measurements of layers share: the attention of a kind, the clock, medians of runs.
//
// The functions are thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/kind_bench.hpp"
#include "scheduler/profile.hpp"

namespace troupe::engine {

/// Heads of a kind with attention.
struct AttentionShape {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = false;
};

/// Empty for a kind without attention.
std::optional<AttentionShape> attention_of(const JobSetup& setup, const LayerKind& kind);

/// Milliseconds of an unspecified start. With one operator thread all work is this thread's, and
/// its processor time leaves out what other programs take; several threads need the wall clock.
double operator_clock_ms();

/// What repeated runs took, pass by pass.
class MeasuredRuns {
 public:
  void add(const scheduler::PartCost& cost);
  std::size_t count() const { return forward_.size(); }
  double spent_ms() const { return spent_ms_; }  ///< All passes of all runs.

  /// Medians of each pass (the upper one of two), no bytes. REQUIRES: a run was added.
  scheduler::PartCost medians() const;

 private:
  std::vector<double> forward_, input_grad_, weight_grad_;
  double spent_ms_ = 0;
};

}  // namespace troupe::engine
