#include "runtime/vocabulary/sample_pieces.hpp"

#include <algorithm>

#include "runtime/vocabulary/index.hpp"

namespace troupe {

bool is_sound(const SamplePiece& piece, std::span<const SampleShape> samples) {
  if (piece.sample < 0 || at(piece.sample) >= samples.size()) return false;
  const auto* items = samples[at(piece.sample)].items(piece.module);
  return items != nullptr && piece.first >= 0 && piece.count >= 1 &&
         at(piece.first) < items->size() && at(piece.count) <= items->size() - at(piece.first);
}

SampleUnits::SampleUnits(std::span<const SampleShape> samples, std::span<const SamplePiece> pieces)
    : samples_(samples), pieces_(pieces) {
  if (pieces.empty()) return;
  copies_.emplace(samples.begin(), samples.end());
  copies_->reserve(samples.size() + pieces.size());
  for (const SamplePiece& piece : pieces) {
    const SampleShape& whole = samples[at(piece.sample)];
    const auto media =
        std::find_if(whole.media.begin(), whole.media.end(),
                     [&](const ModuleMedia& entry) { return entry.module == piece.module; });
    const auto begin = media->items.begin() + piece.first;
    SampleShape shape;
    shape.position = whole.position;
    shape.id = whole.id;
    shape.media.push_back(
        {piece.module, {begin, begin + piece.count}, media->columns, media->equal_frames});
    copies_->push_back(std::move(shape));
  }
}

const SamplePiece* SampleUnits::piece(std::int32_t unit) const {
  return at(unit) < samples_.size() ? nullptr : &pieces_[at(unit) - samples_.size()];
}

std::int32_t SampleUnits::sample_of(std::int32_t unit) const {
  const SamplePiece* piece = this->piece(unit);
  return piece ? piece->sample : unit;
}

TokenCount SampleUnits::rows_before(std::int32_t unit) const {
  const SamplePiece* piece = this->piece(unit);
  if (!piece) return 0;
  const auto& items = *samples_[at(piece->sample)].items(piece->module);
  TokenCount rows = 0;
  for (std::int32_t i = 0; i < piece->first; ++i) rows += items[at(i)].output_rows;
  return rows;
}

}  // namespace troupe
