// What all measurements of layers share: the attention of a kind, and the clock.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <optional>

#include "engine/kind_bench.hpp"

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

}  // namespace troupe::engine
