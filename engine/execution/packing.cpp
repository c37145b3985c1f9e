#include "engine/execution/packing.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <string>

#include "models/text_batch.hpp"
#include "runtime/vocabulary/module_rows.hpp"

namespace troupe::engine {

namespace {

/// Rows of a sample that enter an encoder, or rows of any module as all plans count them.
TokenCount rows_of(const ModelGraph& graph, ModuleId module, RowKind kind,
                   const SampleShape& sample) {
  if (kind == RowKind::output) return output_rows(graph, module, sample);
  if (kind == RowKind::hidden || graph.at(module).kind != ModuleKind::encoder)
    return hidden_rows(graph, module, sample);
  TokenCount rows = 0;
  if (const auto* items = sample.items(module))
    for (const auto& item : *items) rows += item.input_rows;
  return rows;
}

Error not_decoded(const SampleShape& sample) {
  return {Errc::internal,
          "sample '" + sample.id + "' was planned on a node that did not decode it",
          {},
          {}};
}

Error other_media(const SampleShape& sample) {
  return {Errc::internal, "sample '" + sample.id + "' has other media than planned", {}, {}};
}

/// What an encoder reads of each item.
template <class Item>
std::vector<std::span<const float>> values_of(const std::vector<Item>& items,
                                              std::vector<float> Item::*values) {
  std::vector<std::span<const float>> found;
  for (const Item& item : items) found.emplace_back(item.*values);
  return found;
}

Error other_text(const SampleShape& sample) {
  return {Errc::internal, "sample '" + sample.id + "' has other text than planned", {}, {}};
}

/// Whether media stand in the text where the plan has its spans: stages that do not read the text
/// make the mask of these alone.
bool stands_as_planned(const data::ExpandedText& text, const SampleShape& sample) {
  std::vector<std::int64_t> planned, found;
  for (const TokenSpan& span : token_sample(sample).spans)
    for (TokenCount token = span.begin; token < span.end; ++token) planned.push_back(token);
  for (const auto* encoders : {&text.image_positions, &text.audio_positions})
    for (const auto& positions : *encoders)
      found.insert(found.end(), positions.begin(), positions.end());
  std::sort(found.begin(), found.end());
  return planned == found;
}

}  // namespace

bool is_vision(const std::vector<MediaShape>& items) { return items.front().grid_height > 0; }

std::size_t place_in_medium(const SampleShape& sample, ModuleId encoder) {
  const bool vision = is_vision(*sample.items(encoder));
  std::size_t place = 0;
  for (const auto& media : sample.media)
    if (media.module < encoder && is_vision(media.items) == vision) ++place;
  return place;
}

ModuleId encoder_of(const ModelGraph& graph, ModuleId module) {
  while (module.valid() && graph.at(module).kind == ModuleKind::projector) {
    ModuleId before;
    for (std::size_t i = 0; i < graph.modules.size(); ++i) {
      const auto& next = graph.modules[i].next;
      if (std::find(next.begin(), next.end(), module) != next.end()) before = ModuleId{i};
    }
    module = before;
  }
  return module.valid() && graph.at(module).kind == ModuleKind::encoder ? module : ModuleId{};
}

std::vector<RowSpan> row_spans(const ModelGraph& graph, ModuleId module, RowKind kind,
                               std::span<const SampleShape> samples,
                               std::span<const std::int32_t> part) {
  std::vector<RowSpan> spans;
  std::int64_t begin = 0;
  for (const std::int32_t index : part) {
    const SampleShape& sample = samples[static_cast<std::size_t>(index)];
    const TokenCount rows = rows_of(graph, module, kind, sample);
    if (rows == 0) continue;
    spans.push_back({index, begin, rows});
    begin += rows;
  }
  return spans;
}

std::int64_t row_count(std::span<const RowSpan> spans) {
  return spans.empty() ? 0 : spans.back().begin + spans.back().rows;
}

bool covers(const std::vector<RowSpan>& spans, const std::vector<std::int32_t>& samples) {
  if (spans.size() != samples.size()) return false;
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (spans[i].sample != samples[i]) return false;
  return true;
}

const RowSpan* find_span(const std::vector<RowSpan>& spans, std::int32_t sample) {
  for (const auto& span : spans)
    if (span.sample == sample) return &span;
  return nullptr;
}

std::string shape_text(const at::Tensor& tensor) {
  std::string text;
  for (const auto size : tensor.sizes()) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text.empty() ? "of one number" : text;
}

at::Tensor take_rows(const at::Tensor& whole, const std::vector<RowSpan>& spans,
                     const std::vector<std::int32_t>& samples) {
  if (covers(spans, samples)) return whole.contiguous();
  std::vector<at::Tensor> slices;
  for (const std::int32_t sample : samples)
    if (const RowSpan* span = find_span(spans, sample))
      slices.push_back(whole.narrow(0, span->begin, span->rows));
  return at::cat(slices);
}

void put_rows(at::Tensor& whole, const std::vector<RowSpan>& spans,
              const std::vector<std::int32_t>& samples, const at::Tensor& rows) {
  std::int64_t begin = 0;
  for (const std::int32_t sample : samples) {
    const RowSpan* span = find_span(spans, sample);
    whole.narrow(0, span->begin, span->rows).copy_(rows.narrow(0, begin, span->rows));
    begin += span->rows;
  }
}

models::PackedBatch pack_media_shapes(ModuleId encoder, std::span<const SampleShape> samples,
                                      std::span<const std::int32_t> part) {
  models::PackedBatch batch;
  for (const std::int32_t index : part) {
    const auto* items = samples[static_cast<std::size_t>(index)].items(encoder);
    if (!items) continue;
    for (const auto& item : *items) {
      batch.segments.push_back(item.hidden_rows);
      if (item.grid_height > 0) {
        batch.grids.push_back({item.grid_height, item.grid_width});
      } else {
        batch.input_segments.push_back(item.input_rows);
      }
    }
  }
  return batch;
}

std::int64_t segment_count(const ModelGraph& graph, ModuleId module,
                           std::span<const SampleShape> samples) {
  if (reads_text(graph.at(module).kind)) return std::ssize(samples);
  const ModuleId encoder = encoder_of(graph, module);
  std::int64_t segments = 0;
  for (const SampleShape& sample : samples)
    if (const auto* items = sample.items(encoder)) segments += std::ssize(*items);
  return segments;
}

Result<models::PackedBatch> pack_text_shapes(const ModelGraph& graph,
                                             std::span<const SampleShape> samples,
                                             std::span<const std::int32_t> part) {
  return pack_text_shapes(graph.at(graph.llm()).attention, samples, part, kernels::GpuLists::none);
}

Result<models::PackedBatch> pack_text_shapes(AttentionRule rule,
                                             std::span<const SampleShape> samples,
                                             std::span<const std::int32_t> part,
                                             kernels::GpuLists lists) {
  std::vector<TokenSample> packed;
  for (const std::int32_t index : part)
    packed.push_back(token_sample(samples[static_cast<std::size_t>(index)]));
  return models::text_batch(packed, rule, lists);
}

Result<at::Tensor> pack_media(const ModelGraph& graph, ModuleId encoder, const SampleUnits& units,
                              std::span<const std::int32_t> part,
                              const data::DecodedSamples& store) {
  const auto spans = row_spans(graph, encoder, RowKind::input, units.shapes(), part);
  at::Tensor packed;
  float* out = nullptr;
  for (const RowSpan& span : spans) {
    const SampleShape& sample = units.shape(units.sample_of(span.sample));
    const auto content = store.find(sample.position);
    if (!content) return not_decoded(sample);
    const std::size_t place = place_in_medium(sample, encoder);
    const auto items = is_vision(*sample.items(encoder))
                           ? values_of(content->images[place], &data::ImagePatches::patches)
                           : values_of(content->audio[place], &data::AudioWindow::mel);
    const SamplePiece* piece = units.piece(span.sample);
    const std::size_t first = piece ? static_cast<std::size_t>(piece->first) : 0;
    const std::size_t end = piece ? first + static_cast<std::size_t>(piece->count) : items.size();
    if (end > items.size()) return other_media(sample);
    const auto own = std::span(items).subspan(first, end - first);
    std::size_t values = 0;
    for (const auto& item : own) values += item.size();
    const auto columns = static_cast<std::int64_t>(values) / span.rows;
    if (!packed.defined()) {
      packed = at::empty({row_count(spans), columns}, at::kFloat);
      out = packed.data_ptr<float>();
    }
    if (columns != packed.size(1) || columns * span.rows != static_cast<std::int64_t>(values))
      return other_media(sample);
    for (const auto& item : own) out = std::copy(item.begin(), item.end(), out);
  }
  return packed;
}

Result<models::PackedBatch> pack_encoder(const ModelGraph& graph, const LayerRun& run,
                                         const SampleUnits& units,
                                         std::span<const std::int32_t> part,
                                         const data::DecodedSamples& store) {
  const ModuleId encoder = encoder_of(graph, run.module);
  auto batch = pack_media_shapes(encoder, units.shapes(), part);
  if (run.module != encoder || run.layers.begin > 0 || batch.segments.empty()) return batch;
  auto media = pack_media(graph, encoder, units, part, store);
  if (!media.ok()) return std::move(media).error();
  batch.input = std::move(media).value();
  return batch;
}

std::vector<std::int64_t> text_positions_of(const data::ExpandedText& text, std::int64_t begin) {
  std::vector<bool> is_text(text.tokens.size(), true);
  for (const auto* encoders : {&text.image_positions, &text.audio_positions})
    for (const auto& positions : *encoders)
      for (const std::int64_t position : positions)
        is_text[static_cast<std::size_t>(position)] = false;
  std::vector<std::int64_t> found;
  for (std::size_t token = 0; token < is_text.size(); ++token)
    if (is_text[token]) found.push_back(begin + static_cast<std::int64_t>(token));
  return found;
}

Result<PackedText> pack_text(const ModelGraph& graph, std::span<const SampleShape> samples,
                             std::span<const std::int32_t> part,
                             const data::DecodedSamples& store) {
  PackedText packed;
  packed.media_positions.resize(graph.modules.size());
  const auto total = row_count(row_spans(graph, graph.llm(), RowKind::hidden, samples, part));
  packed.token_ids = at::empty({total}, at::kLong);
  packed.labels = at::empty({total}, at::kLong);
  const bool by_modality = graph.at(graph.llm()).attention == AttentionRule::modality;
  std::int64_t begin = 0;
  for (const std::int32_t index : part) {
    const SampleShape& sample = samples[static_cast<std::size_t>(index)];
    const auto content = store.find(sample.position);
    if (!content) return not_decoded(sample);
    data::MarkerRows image_rows, audio_rows;
    for (const auto& media : sample.media) {
      if (is_vision(media.items)) {
        image_rows.push_back(data::rows_per_marker(&media.items, content->text.image_markers));
      } else {
        audio_rows.push_back(data::rows_per_marker(&media.items, content->text.audio_markers));
      }
    }
    auto expanded = data::expand_text(content->text, image_rows, audio_rows);
    if (!expanded.ok()) return std::move(expanded).error();
    const data::ExpandedText& text = expanded.value();
    if (static_cast<TokenCount>(text.tokens.size()) != sample.llm_tokens) return other_text(sample);
    if (by_modality && !stands_as_planned(text, sample)) return other_text(sample);
    std::copy(text.tokens.begin(), text.tokens.end(),
              packed.token_ids.data_ptr<std::int64_t>() + begin);
    std::copy(text.labels.begin(), text.labels.end(),
              packed.labels.data_ptr<std::int64_t>() + begin);
    packed.text_positions.push_back(text_positions_of(text, begin));
    for (auto& lists : packed.media_positions) lists.emplace_back();
    for (const auto& media : sample.media) {
      auto& list = packed.media_positions[media.module.index()].back();
      list = (is_vision(media.items) ? text.image_positions
                                     : text.audio_positions)[place_in_medium(sample, media.module)];
      for (auto& position : list) position += begin;
    }
    begin += sample.llm_tokens;
  }
  return packed;
}

}  // namespace troupe::engine
