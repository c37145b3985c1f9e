// How long a conversation is for the llm, before rows of media are known.
//
// Pure.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/data/formats/record.hpp"
#include "runtime/data/lengths/length_key.hpp"
#include "runtime/data/reading/encode_text.hpp"
#include "runtime/data/samples/bad_sample.hpp"
#include "runtime/data/samples/decode_sample.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::data {

/// A marker of the text.
struct TextMarker {
  bool is_audio = false;       ///< Else of a picture.
  TokenCount text_before = 0;  ///< Tokens before it, without markers.

  friend bool operator==(const TextMarker&, const TextMarker&) = default;
};

struct TextLengths {
  TokenCount tokens = 0;          ///< Without markers.
  TokenCount trained_tokens = 0;  ///< As `EncodedText::trained_tokens`.
  std::vector<TextMarker> markers;

  std::int32_t image_markers() const;
  std::int32_t audio_markers() const;
  friend bool operator==(const TextLengths&, const TextLengths&) = default;
};

TextLengths text_lengths(const EncodedText& text);

/// What they are kept by: the conversation, and the tokenizer and template that it was encoded
/// with, known by what they make of an example.
std::optional<LengthKey> key_of(std::span<const Turn> turns);

/// As an index keeps them, and back. None: these numbers are none.
std::vector<std::int64_t> to_numbers(const TextLengths& lengths);
std::optional<TextLengths> text_lengths_of(std::span<const std::int64_t> numbers);

/// Where the text has markers, and of which encoder: one for each encoder of the medium.
std::vector<MediaMarker> markers_of(const TextLengths& text, const MediaModules& modules);

/// What is wrong with a sample's record and text: the first faults in the order of
/// `decode_sample`.
std::optional<BadSample> find_text_fault(const Record& record, const TextLengths& text,
                                         const DataOptions& options);

}  // namespace troupe::data
