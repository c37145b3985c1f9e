// The attention of a kind, as all measurements of layers see it.
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

}  // namespace troupe::engine
