// From decoded samples to the packed batch of one part as one module sees it.
//
// Samples stand in the part's order, media items in the order of their markers; nothing is padded.
// Parts name units (`SampleUnits`); `samples` are all of these, whole samples first.
// Stateless; the tensors own their memory.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/mask_tiles.hpp"
#include "models/layer.hpp"
#include "runtime/data/samples/decoded_samples.hpp"
#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_pieces.hpp"
#include "runtime/vocabulary/sample_shape.hpp"

namespace troupe::engine {

/// Rows of each unit of a part in one module's tensor, in packing order.
struct RowSpan {
  std::int32_t sample = -1;  ///< A unit of the iteration.
  std::int64_t begin = 0;
  std::int64_t rows = 0;  ///< > 0; samples without rows have no span.
};

/// Which rows of a module: of what it reads, between its layers, or of what it hands on.
enum class RowKind : std::uint8_t {
  input,   ///< Patches of pictures, frames of sound.
  hidden,  ///< What attention segments count.
  output   ///< What `Message::boundary` moves.
};

/// Which rows of a module's tensor belong to which sample.
std::vector<RowSpan> row_spans(const ModelGraph& graph, ModuleId module, RowKind kind,
                               std::span<const SampleShape> samples,
                               std::span<const std::int32_t> part);

/// Sum of the rows of `spans`.
std::int64_t row_count(std::span<const RowSpan> spans);

/// True if `spans` are exactly those of `samples`, in this order.
bool covers(const std::vector<RowSpan>& spans, const std::vector<std::int32_t>& samples);

/// The span of a sample, or nullptr.
const RowSpan* find_span(const std::vector<RowSpan>& spans, std::int32_t sample);

/// `4 x 96`, of an error's message. REQUIRES: the tensor is defined.
std::string shape_text(const at::Tensor& tensor);

/// The rows of `samples` out of a tensor whose rows are as in `spans`, contiguous: the tensor
/// itself where they are all of it, in its order.
at::Tensor take_rows(const at::Tensor& whole, const std::vector<RowSpan>& spans,
                     const std::vector<std::int32_t>& samples);

/// Writes `rows`, those of `samples`, to their places in such a tensor.
void put_rows(at::Tensor& whole, const std::vector<RowSpan>& spans,
              const std::vector<std::int32_t>& samples, const at::Tensor& rows);

/// Lengths of an encoder's segments for a part: images or audio windows. No contents.
models::PackedBatch pack_media_shapes(ModuleId encoder, std::span<const SampleShape> samples,
                                      std::span<const std::int32_t> part);

/// Segments that the layers of a module see of a batch: images, audio windows, or samples. A
/// projector sees those of its encoder.
std::int64_t segment_count(const ModelGraph& graph, ModuleId module,
                           std::span<const SampleShape> samples);

/// What the llm's layers read of a part besides rows: a segment per sample, positions, and the mask
/// where its attention is by modality. No contents.
///
/// Errors:
/// - invalid_argument: as `models::text_batch`.
Result<models::PackedBatch> pack_text_shapes(const ModelGraph& graph,
                                             std::span<const SampleShape> samples,
                                             std::span<const std::int32_t> part);
/// The same without the graph, and with what the mask's tiles have for a GPU.
Result<models::PackedBatch> pack_text_shapes(AttentionRule rule,
                                             std::span<const SampleShape> samples,
                                             std::span<const std::int32_t> part,
                                             kernels::GpuLists lists);

/// The media of a part as the first layer of `encoder` reads it, of a piece its items alone:
/// [patches, columns] or [frames, mel], fp32.
///
/// Errors:
/// - internal: this node did not decode a sample of the part, or its sizes are not the planned
/// ones.
Result<at::Tensor> pack_media(const ModelGraph& graph, ModuleId encoder, const SampleUnits& units,
                              std::span<const std::int32_t> part,
                              const data::DecodedSamples& store);

/// What layers of an encoder or its projector read of a part besides rows: lengths of segments, and
/// the media where the first of them is the encoder's first.
///
/// Errors:
/// - internal: as `pack_media`.
Result<models::PackedBatch> pack_encoder(const ModelGraph& graph, const LayerRun& run,
                                         const SampleUnits& units,
                                         std::span<const std::int32_t> part,
                                         const data::DecodedSamples& store);

/// The text of a part, media placeholders repeated to their rows.
struct PackedText {
  at::Tensor token_ids;  ///< int64 [tokens].
  at::Tensor labels;     ///< int64 [tokens], -100 ignored, not shifted.
  /// Per encoder module: positions of its rows in the packed sequence, one list per sample of the
  /// part (empty lists where a sample has none). Shape: [modules][samples of the part][rows].
  std::vector<std::vector<std::vector<std::int64_t>>> media_positions;
  /// Positions of tokens that are text, one list per sample of the part, ascending.
  std::vector<std::vector<std::int64_t>> text_positions;
};

/// Errors:
/// - internal: as `pack_media`.
Result<PackedText> pack_text(const ModelGraph& graph, std::span<const SampleShape> samples,
                             std::span<const std::int32_t> part, const data::DecodedSamples& store);

/// Whether these are pictures, not windows of sound. REQUIRES: not empty.
bool is_vision(const std::vector<MediaShape>& items);

/// Which encoder of its medium this is, as `data::DecodedSample` counts them: a sample that has
/// media of it has some of all of them. REQUIRES: the sample has some for it.
std::size_t place_in_medium(const SampleShape& sample, ModuleId encoder);

/// Where no rows of media stand in the text of a sample, counted from `begin`; ascending.
std::vector<std::int64_t> text_positions_of(const data::ExpandedText& text, std::int64_t begin);

/// The module whose media reach `module`: itself for an encoder, the encoder before a projector.
/// Invalid for the llm.
ModuleId encoder_of(const ModelGraph& graph, ModuleId module);

}  // namespace troupe::engine
