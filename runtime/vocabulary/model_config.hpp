// Hyperparameters of the model families, in Hugging Face's field names. Values only.
//
// The job file fills them (`[modules.NAME.config]`), `models/` builds layers from them. Defaults
// are those of a small model that trains on a CPU.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe {

/// Vision transformer with 2-D rotary positions and a 2x2 merger, as in Qwen2-VL.
/// Layers: 0 patch embedding, 1..depth blocks, depth+1 merger.
struct VisionConfig {
  std::int32_t depth = 4;
  std::int32_t embed_dim = 64;
  std::int32_t num_heads = 4;  ///< embed_dim / num_heads is a multiple of 4.
  double mlp_ratio = 4;
  std::int32_t hidden_size = 128;  ///< Columns after the merger.
  std::int32_t patch_size = 14;
  std::int32_t spatial_merge_size = 2;
  std::int32_t temporal_patch_size = 2;
  std::int32_t in_channels = 3;

  friend bool operator==(const VisionConfig&, const VisionConfig&) = default;
};

/// Audio encoder of Whisper. Layers: 0 convolutions and positions, 1..encoder_layers blocks,
/// encoder_layers+1 final norm.
struct AudioConfig {
  std::int32_t encoder_layers = 2;
  std::int32_t d_model = 64;
  std::int32_t encoder_attention_heads = 4;
  std::int32_t encoder_ffn_dim = 256;
  std::int32_t num_mel_bins = 80;
  std::int32_t max_source_positions = 1500;

  friend bool operator==(const AudioConfig&, const AudioConfig&) = default;
};

/// Two linear layers with GELU between, as LLaVA's. One layer. Widths follow from its neighbours.
struct ProjectorConfig {
  std::int32_t input_size = 0;   ///< 0: the output width of the module before it.
  std::int32_t hidden_size = 0;  ///< 0: as output_size.
  std::int32_t output_size = 0;  ///< 0: the llm's hidden_size.

  friend bool operator==(const ProjectorConfig&, const ProjectorConfig&) = default;
};

/// Llama-type decoder. Layers: 0 token embedding, 1..num_hidden_layers blocks,
/// num_hidden_layers+1 final norm and head.
struct LlmConfig {
  std::int32_t num_hidden_layers = 4;
  std::int32_t hidden_size = 128;
  std::int32_t intermediate_size = 352;
  std::int32_t num_attention_heads = 4;
  std::int32_t num_key_value_heads = 2;
  std::int32_t head_dim = 0;      ///< 0: hidden_size / num_attention_heads.
  std::int32_t vocab_size = 320;  ///< At least the tokenizer's.
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000;
  bool tie_word_embeddings = false;

  friend bool operator==(const LlmConfig&, const LlmConfig&) = default;
};

/// A module as the job file names it: what it is, where it goes, whether it learns.
struct ModuleConfig {
  std::string name;
  ModuleKind kind = ModuleKind::llm;
  std::string family;  ///< `qwen2-vl` (vision), `whisper`, `mlp`, `llama`.
  std::string next;    ///< Empty for the llm.
  bool freeze = false;
  std::optional<double> lr;         ///< Own peak learning rate; none: the optimizer's.
  double initializer_range = 0.02;  ///< Standard deviation of initial weights.
  std::variant<VisionConfig, AudioConfig, ProjectorConfig, LlmConfig> config;
  /// Where its first values are: a run, a checkpoint, or a safetensors file. Empty: the seed.
  std::string init = {};

  friend bool operator==(const ModuleConfig&, const ModuleConfig&) = default;
};

enum class Dtype : std::uint8_t { fp32, bf16, fp64 };

}  // namespace troupe
