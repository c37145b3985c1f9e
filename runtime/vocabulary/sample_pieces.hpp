// Samples whose items an encoder takes in pieces: one with many pictures need not go through one
// replica, nor through one microbatch.
//
// Pure.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/vocabulary/sample_shape.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe {

/// Consecutive items of one sample for one encoder. Items are independent of each other up to the
/// llm: no layer of an encoder looks beyond an image or an audio window.
struct SamplePiece {
  std::int32_t sample = -1;  ///< Index into `IterationPlan::samples`.
  ModuleId module;           ///< The encoder that takes these items.
  std::int32_t first = 0;    ///< Of the sample's items for this encoder, from 0.
  std::int32_t count = 0;    ///< >= 1.

  friend auto operator<=>(const SamplePiece&, const SamplePiece&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, SamplePiece& x) {
    return f(x.sample, x.module, x.first, x.count);
  }
};

/// True if the sample is there and has these items.
bool is_sound(const SamplePiece& piece, std::span<const SampleShape> samples);

/// What parts and messages of an iteration name by one index, a *unit*: first its samples, then its
/// pieces.
class SampleUnits {
 public:
  /// Both outlive this. REQUIRES: `is_sound` of all pieces.
  SampleUnits(std::span<const SampleShape> samples, std::span<const SamplePiece> pieces);

  std::size_t size() const { return samples_.size() + pieces_.size(); }  ///< Of all units.
  std::size_t whole() const { return samples_.size(); }                  ///< So many are samples.
  /// Per unit. A piece looks like a sample with its items alone: no tokens, no markers, the id and
  /// position of its sample.
  std::span<const SampleShape> shapes() const { return copies_ ? std::span(*copies_) : samples_; }
  const SampleShape& shape(std::int32_t unit) const {  ///< Of `shapes`.
    return shapes()[static_cast<std::size_t>(unit)];
  }
  /// Null: a whole sample.
  const SamplePiece* piece(std::int32_t unit) const;
  std::int32_t sample_of(std::int32_t unit) const;  ///< Itself, where it is a sample.
  /// Rows that the sample's items before these ones hand to the llm; 0 for whole samples.
  TokenCount rows_before(std::int32_t unit) const;

 private:
  std::span<const SampleShape> samples_;
  std::span<const SamplePiece> pieces_;
  std::optional<std::vector<SampleShape>> copies_;  ///< With pieces; else nothing is copied.
};

}  // namespace troupe
