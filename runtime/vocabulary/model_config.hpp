// The modules of a model as the job file names them. Values only.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/vocabulary/family_config.hpp"
#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe {

/// A module: what it is, where it goes, whether it learns.
struct ModuleConfig {
  std::string name;
  ModuleKind kind = ModuleKind::llm;
  std::string family;  ///< `qwen2-vl` (vision), `whisper`, `mlp`, `llama`, or one that was added.
  std::string next;    ///< Empty for the llm.
  bool freeze = false;
  std::optional<double> lr;         ///< Own peak learning rate; none: the optimizer's.
  double initializer_range = 0.02;  ///< Standard deviation of initial weights.
  FamilyConfig config;              ///< The values of its family, `[modules.NAME.config]`.
  /// Where its first values are: a run, a checkpoint, or a safetensors file. Empty: the seed.
  std::string init = {};
  AttentionRule attention = AttentionRule::causal;  ///< Of the llm.

  friend bool operator==(const ModuleConfig&, const ModuleConfig&) = default;
};
/// Of numbers: `train.dtype`.
enum class Dtype : std::uint8_t { fp32, bf16, fp64 };

}  // namespace troupe
