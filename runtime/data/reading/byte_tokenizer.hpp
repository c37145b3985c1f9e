// The embedded default tokenizer: one token per UTF-8 byte, and eight special tokens.
//
// Pure. Needs no files, knows every text, and never fails: good for tests, demos and small models.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/vocabulary/tokenizer_size.hpp"

namespace troupe::data {

using TokenId = std::int32_t;  ///< A byte, or above them a special token.

/// Label of a token that carries no loss; the value every framework uses.
inline constexpr TokenId kIgnoreLabel = -100;

/// Token ids: 0..255 are bytes, 256..263 the special tokens below, the rest up to `kVocabSize` is
/// never produced.
struct ByteTokenizer {
  static constexpr TokenId kBegin = 256;      ///< First token of every sample.
  static constexpr TokenId kSystem = 257;     ///< Opens a system turn.
  static constexpr TokenId kUser = 258;       ///< Opens a user's turn.
  static constexpr TokenId kAssistant = 259;  ///< Opens an assistant's turn.
  static constexpr TokenId kEnd = 260;        ///< Closes every turn.
  static constexpr TokenId kImage = 261;      ///< Where rows of an image go.
  static constexpr TokenId kAudio = 262;      ///< Where rows of an audio clip go.
  static constexpr TokenId kPad = 263;        ///< Reserved; sequences are packed, not padded.
  static constexpr TokenId kVocabSize = kTokenizerSize;

  /// One id per byte of `text`, appended to `out`.
  static void encode(std::string_view text, std::vector<TokenId>& out);

  /// The first part of `text` that is written like a special token (`<|user|>`, of any tokenizer):
  /// a special token to the eye, plain bytes to the model. Empty: none.
  static std::string_view find_special_name(std::string_view text);

  /// The text behind ids; special tokens appear by name, `<|user|>`; unknown ids as `<|id N|>`.
  static std::string decode(std::span<const TokenId> ids);
};

}  // namespace troupe::data
