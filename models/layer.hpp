// What the engine holds of a model: layers, their parameters, and one part of one microbatch as a
// module sees it. Layers are built one by one, so that a stage holds only its own.
//
// A layer is owned and called by one thread at a time. It keeps no state between calls besides its
// parameters; two parts may be in flight at once, each with its own autograd graph.
// Does not hold: optimizer state, communication, or the order in which layers run.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/auxiliary_loss.hpp"

namespace troupe::kernels {
class MaskTiles;
}

namespace troupe::models {

struct ParameterUpdate;
/// Moves a parameter by one step in AdamW's place (models/own_update.hpp).
using UpdateRule = std::function<void(const ParameterUpdate&)>;

/// One tensor of a layer.
struct Parameter {
  /// Module name, a dot, the Hugging Face name: `llm.model.layers.3.self_attn.q_proj.weight`.
  std::string name;
  /// A leaf. `requires_grad()` says whether it is trained: false in a frozen module, and always
  /// false for Whisper's `embed_positions.weight`, which is stored but never trained.
  at::Tensor value;
  /// This is a second use of a parameter that an earlier layer owns under the same name. Both
  /// start with equal values; whoever holds them must sum their gradients.
  bool tied_use = false;
  /// Its family's, where that moves it; empty: AdamW does.
  UpdateRule update = {};
};

/// Height and width of an image in patches; both are multiples of `spatial_merge_size`.
struct GridSize {
  std::int64_t height = 0;
  std::int64_t width = 0;

  friend bool operator==(const GridSize&, const GridSize&) = default;
};

/// Rows of one encoder (after its projector) and where they belong in the llm's sequence.
struct MediaRows {
  at::Tensor positions;  ///< int64 [rows]: index into the packed llm sequence; all different.
  at::Tensor rows;       ///< [rows, hidden]; may require grad.
};

/// What a teacher says of the text of a part, for the llm's last layer.
struct TaughtRows {
  std::string teacher;   ///< Its module.
  at::Tensor positions;  ///< int64 [rows]: index into the packed llm sequence, ascending.
  at::Tensor rows;       ///< [rows, its output width], one per token of text; no gradient.
};

/// Anything layers derive from a batch and share among each other (rotary tables, gather indices).
class BatchCache;

/// One part of one microbatch as one module sees it. Samples are packed end to end, never padded.
///
/// `forward` may fill `cache`, so one PackedBatch object must not be used by two threads at once.
/// Copies share the cache; it notices by itself when lengths and positions below have changed.
struct PackedBatch {
  /// Rows per attention segment between layers: per image (patches), per audio window (frames / 2
  /// rounded up), or per sample (llm). All > 0. Their sum is the number of rows.
  std::vector<std::int64_t> segments;
  /// llm: each row's place in its sample, from 0, which is what rotary angles turn by. One per row.
  std::vector<std::int64_t> positions;
  /// llm, `AttentionRule::modality`: which rows see which, in tiles that all layers share. Null
  /// under `causal`, where the segments say all.
  std::shared_ptr<const kernels::MaskTiles> mask;
  /// Vision: the patch grid of each image; segments[i] == height * width.
  std::vector<GridSize> grids;
  /// Read by the first layer of a module only. vision: [patches, channels * temporal * patch^2] in
  /// the order of Qwen2-VL (blocks of merge x merge patches); audio: [frames, mel]; llm: int64
  /// [tokens] (ids at media positions are ignored, any value). Floats are cast to the model's
  /// dtype.
  at::Tensor input;
  /// Audio: frames per window before the stride-2 convolution; segments[i] == ceil(frames / 2).
  std::vector<std::int64_t> input_segments;
  /// llm layer 0 only: the rows that replace token embeddings. Empty for text.
  std::vector<MediaRows> media;
  /// llm head only: int64 [tokens], -100 ignored, NOT shifted: position t predicts label t + 1 of
  /// the same sample, so a sample's first label is never used.
  at::Tensor labels;
  /// llm head only: one per teacher that has rows here, in the order of the model's modules.
  std::vector<TaughtRows> taught;

  /// Where `add_loss` leaves losses of layers; null: nobody collects them.
  std::shared_ptr<AuxiliaryLosses> losses;
  /// Somebody has to: what a layer adds is trained, so that `add_loss` throws where nobody does.
  bool needs_losses = false;

  mutable std::shared_ptr<BatchCache> cache;
};

/// One layer of a module.
class Layer {
 public:
  Layer() = default;
  virtual ~Layer();
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  /// Rows in, rows out: [sum of segments, hidden]. The first layer of a module ignores `rows` and
  /// reads `batch.input`; a merger returns a quarter of the rows; the llm's last layer returns the
  /// cross-entropy of each sample, summed over its trained tokens and not divided: [samples], fp32
  /// for bf16 models; of another shape they are refused. What else it wants to be small it gives to
  /// `add_loss`. Runs as the model's dtype on the layer's device, deterministic to the bit; records
  /// autograd state only where a parameter or an input requires grad. No rows: no rows. REQUIRES:
  /// shapes as documented above.
  /// Throws: c10::Error (from LibTorch, or for a batch whose lengths contradict each other);
  /// callers at a component's border catch it.
  virtual at::Tensor forward(const at::Tensor& rows, const PackedBatch& batch) = 0;

  /// All tensors, in a fixed order. Values may be written in place (loading, optimizer).
  virtual std::vector<Parameter>& parameters() = 0;
};

}  // namespace troupe::models
