#include "runtime/data/reading/encode_text.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace troupe::data {
namespace {

constexpr std::string_view kImageMarker = "<image>";
constexpr std::string_view kAudioMarker = "<audio>";

TokenId role_token(Role role) {
  switch (role) {
    case Role::system: return ByteTokenizer::kSystem;
    case Role::user: return ByteTokenizer::kUser;
    case Role::assistant: return ByteTokenizer::kAssistant;
  }
  return ByteTokenizer::kUser;
}

/// Appends a turn's text with placeholders for its markers, and counts those.
void append_text(std::string_view text, EncodedText& out) {
  while (!text.empty()) {
    const bool is_image = text.starts_with(kImageMarker);
    if (is_image || text.starts_with(kAudioMarker)) {
      out.tokens.push_back(is_image ? ByteTokenizer::kImage : ByteTokenizer::kAudio);
      ++(is_image ? out.image_markers : out.audio_markers);
      text.remove_prefix(is_image ? kImageMarker.size() : kAudioMarker.size());
      continue;
    }
    const std::size_t next = std::min(text.find('<', 1), text.size());
    ByteTokenizer::encode(text.substr(0, next), out.tokens);
    text.remove_prefix(next);
  }
}

bool is_placeholder(TokenId token) {
  return token == ByteTokenizer::kImage || token == ByteTokenizer::kAudio;
}

/// Labels for the tokens that were added since labels ended.
void append_labels(bool is_trained, EncodedText& out) {
  for (std::size_t i = out.labels.size(); i < out.tokens.size(); ++i)
    out.labels.push_back(is_trained && !is_placeholder(out.tokens[i]) ? out.tokens[i]
                                                                      : kIgnoreLabel);
}

Status check_rows(const char* kind, std::span<const TokenCount> rows, std::int32_t markers) {
  const auto wrong = [&](std::string message) {
    return Error{Errc::invalid_argument, std::move(message), "", ""};
  };
  if (std::ssize(rows) != markers)
    return wrong("rows are given for " + std::to_string(rows.size()) + " " + kind +
                 " markers, but the text has " + std::to_string(markers));
  const auto empty = std::find_if(rows.begin(), rows.end(), [](TokenCount r) { return r < 1; });
  if (empty != rows.end())
    return wrong(std::string(kind) + " marker " + std::to_string(empty - rows.begin()) + " has " +
                 std::to_string(*empty) + " rows");
  return Done{};
}

/// Rows of all encoders of a medium, and whether they are right.
Status check_rows(const char* kind, const MarkerRows& rows, std::int32_t markers) {
  if (rows.empty()) return check_rows(kind, std::span<const TokenCount>(), markers);
  for (const auto& encoder : rows)
    if (Status fine = check_rows(kind, std::span<const TokenCount>(encoder), markers); !fine)
      return fine;
  return Done{};
}

}  // namespace

TokenCount EncodedText::trained_tokens() const {
  return std::count_if(labels.begin(), labels.end(),
                       [](TokenId label) { return label != kIgnoreLabel; });
}

EncodedText encode_text(std::span<const Turn> turns) {
  EncodedText text;
  text.tokens.push_back(ByteTokenizer::kBegin);
  for (const auto& turn : turns) {
    text.tokens.push_back(role_token(turn.role));
    append_labels(false, text);
    append_text(turn.text, text);
    text.tokens.push_back(ByteTokenizer::kEnd);
    append_labels(turn.role == Role::assistant, text);
  }
  append_labels(false, text);
  return text;
}

std::vector<TokenCount> rows_per_marker(const std::vector<MediaShape>* items,
                                        std::int32_t marker_count) {
  std::vector<TokenCount> rows(static_cast<std::size_t>(marker_count));
  if (items == nullptr) return rows;
  for (const auto& item : *items)
    if (item.marker >= 0 && item.marker < marker_count)
      rows[static_cast<std::size_t>(item.marker)] += item.output_rows;
  return rows;
}

Result<ExpandedText> expand_text(const EncodedText& text, const MarkerRows& image_rows,
                                 const MarkerRows& audio_rows) {
  if (Status fine = check_rows("image", image_rows, text.image_markers); !fine) return fine.error();
  if (Status fine = check_rows("audio", audio_rows, text.audio_markers); !fine) return fine.error();

  ExpandedText expanded;
  expanded.image_positions.resize(image_rows.size());
  expanded.audio_positions.resize(audio_rows.size());
  std::size_t image = 0, audio = 0;
  for (std::size_t i = 0; i < text.tokens.size(); ++i) {
    const TokenId token = text.tokens[i];
    TokenCount copies = is_placeholder(token) ? 0 : 1;
    const auto place = [&](const MarkerRows& rows, std::size_t marker,
                           std::vector<std::vector<std::int64_t>>& positions) {
      for (std::size_t encoder = 0; encoder < rows.size(); ++encoder)
        for (TokenCount row = 0; row < rows[encoder][marker]; ++row)
          positions[encoder].push_back(std::ssize(expanded.tokens) + copies++);
    };
    if (token == ByteTokenizer::kImage) place(image_rows, image++, expanded.image_positions);
    if (token == ByteTokenizer::kAudio) place(audio_rows, audio++, expanded.audio_positions);
    expanded.tokens.insert(expanded.tokens.end(), static_cast<std::size_t>(copies), token);
    expanded.labels.insert(expanded.labels.end(), static_cast<std::size_t>(copies), text.labels[i]);
  }
  return expanded;
}

}  // namespace troupe::data
