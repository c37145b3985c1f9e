// From a record's conversation to token ids and labels, before and after media rows are known.
//
// Pure. The chat template (special tokens in <>; T is the turn's text, byte by byte):
//
//   `<begin> [<system> T <end>]` then per turn: `<user> T <end>` or `<assistant> T <end>`
//
// A marker `<image>` or `<audio>` in a turn is replaced by one placeholder token, which
// `expand_text` repeats once per row of the item. Line breaks around markers stay as they are.
// Labels: an assistant's text and its `<end>` carry loss, everything else is kIgnoreLabel, media
// placeholders in an assistant's turn too.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/data/formats/record.hpp"
#include "runtime/data/reading/byte_tokenizer.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::data {

/// A conversation as tokens, one placeholder per media file.
struct EncodedText {
  std::vector<TokenId> tokens;
  /// One per token: labels[i] is tokens[i] or kIgnoreLabel. NOT shifted: the logits at position
  /// i - 1 predict labels[i]. labels[0] is always ignored.
  std::vector<TokenId> labels;
  std::int32_t image_markers = 0;
  std::int32_t audio_markers = 0;

  /// Labels that carry loss.
  TokenCount trained_tokens() const;
  friend bool operator==(const EncodedText&, const EncodedText&) = default;
};

/// A conversation as the llm sees it, media rows included.
struct ExpandedText {
  std::vector<TokenId> tokens;  ///< Placeholders repeated to the row counts.
  std::vector<TokenId> labels;  ///< As in EncodedText: one per token, not shifted.
  /// Per vision encoder the position of each of its rows, in the order of markers, then rows: row r
  /// of the sample's projected rows of encoder e, laid end to end, belongs at
  /// tokens[image_positions[e][r]].
  std::vector<std::vector<std::int64_t>> image_positions;
  std::vector<std::vector<std::int64_t>> audio_positions;  ///< The same for audio.

  friend bool operator==(const ExpandedText&, const ExpandedText&) = default;
};

/// Applies the template. Cost: O(bytes). Never fails; whether markers match the files and whether
/// anything is trained is for `decode_sample` to say.
EncodedText encode_text(std::span<const Turn> turns);

/// Rows behind each of `marker_count` markers: the output rows of its items (windows of one clip)
/// added up. `items` as in SampleShape; nullptr: no items.
std::vector<TokenCount> rows_per_marker(const std::vector<MediaShape>* items,
                                        std::int32_t marker_count);

/// Per encoder of a medium the rows that come for each marker.
using MarkerRows = std::vector<std::vector<TokenCount>>;

/// Repeats placeholders to the rows that come for each marker (>= 1 of each encoder): those of the
/// first encoder, behind them those of the next one.
///
/// Errors:
/// - invalid_argument: a list whose length is not the number of markers of its kind, a count below
///   one, or markers without an encoder.
Result<ExpandedText> expand_text(const EncodedText& text, const MarkerRows& image_rows,
                                 const MarkerRows& audio_rows);

}  // namespace troupe::data
