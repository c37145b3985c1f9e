#include "runtime/data/samples/text_lengths.hpp"

#include <algorithm>
#include <string>

namespace troupe::data {
namespace {

BadSample bad(const Record& record, BadKind kind, std::string reason, std::string file = {}) {
  return {
      record.id, kind, std::move(file), record.where, std::move(reason), std::string(fix_of(kind))};
}

std::optional<BadSample> find_marker_fault(const Record& record, const char* name,
                                           std::int32_t markers, std::size_t files) {
  if (static_cast<std::size_t>(markers) == files) return std::nullopt;
  return bad(record, BadKind::marker_mismatch,
             "the text has " + std::to_string(markers) + " <" + name + "> markers for " +
                 std::to_string(files) + " files");
}

void add_turns(KeyText& text, std::span<const Turn> turns) {
  for (const Turn& turn : turns) {
    text.add(static_cast<std::int64_t>(turn.role));
    text.add(turn.text);
  }
}

/// Tokens and labels of a conversation in which everything occurs that a template treats apart.
std::string example_text() {
  const std::vector<Turn> turns{{Role::system, "Be brief."},
                                {Role::user, "<image>\nWhat is <audio> that? \xC3\xA9\xE2\x82\xAC"},
                                {Role::assistant, "A 12 <|end|>."},
                                {Role::user, ""},
                                {Role::assistant, "<image>"}};
  const EncodedText text = encode_text(turns);
  std::string made;
  for (const auto& ids : {text.tokens, text.labels})
    for (const auto id : ids) made += std::to_string(id) + " ";
  return made;
}

}  // namespace

std::int32_t TextLengths::image_markers() const {
  return static_cast<std::int32_t>(markers.size()) - audio_markers();
}

std::int32_t TextLengths::audio_markers() const {
  return static_cast<std::int32_t>(std::count_if(
      markers.begin(), markers.end(), [](const TextMarker& marker) { return marker.is_audio; }));
}

TextLengths text_lengths(const EncodedText& text) {
  TextLengths lengths;
  lengths.trained_tokens = text.trained_tokens();
  for (const TokenId token : text.tokens) {
    const bool is_audio = token == ByteTokenizer::kAudio;
    if (is_audio || token == ByteTokenizer::kImage)
      lengths.markers.push_back({is_audio, lengths.tokens});
    else
      ++lengths.tokens;
  }
  return lengths;
}

std::optional<LengthKey> key_of(std::span<const Turn> turns) {
  static const std::string example = example_text();
  KeyText text("text");
  text.add(example);
  add_turns(text, turns);
  return text.key();
}

std::vector<std::int64_t> to_numbers(const TextLengths& lengths) {
  std::vector<std::int64_t> numbers{lengths.tokens, lengths.trained_tokens};
  for (const TextMarker& marker : lengths.markers)
    numbers.push_back(2 * marker.text_before + (marker.is_audio ? 1 : 0));
  return numbers;
}

std::optional<TextLengths> text_lengths_of(std::span<const std::int64_t> numbers) {
  if (numbers.size() < 2 || numbers[1] > numbers[0]) return std::nullopt;
  TextLengths lengths{numbers[0], numbers[1], {}};
  TokenCount before = 0;
  for (const std::int64_t number : numbers.subspan(2)) {
    const TextMarker marker{number % 2 == 1, number / 2};
    if (marker.text_before < before || marker.text_before > lengths.tokens) return std::nullopt;
    before = marker.text_before;
    lengths.markers.push_back(marker);
  }
  return lengths;
}

std::vector<MediaMarker> markers_of(const TextLengths& text, const MediaModules& modules) {
  std::vector<MediaMarker> markers;
  for (const TextMarker& marker : text.markers)
    for (const ModuleId module : marker.is_audio ? modules.audio : modules.vision)
      markers.push_back({module, marker.text_before});
  return markers;
}

std::optional<BadSample> find_text_fault(const Record& record, const TextLengths& text,
                                         const DataOptions& options) {
  if (!record.defect.empty()) return bad(record, BadKind::malformed_record, record.defect);
  if (options.vision.empty() && !record.images.empty())
    return bad(record, BadKind::no_encoder, "the model has no vision encoder",
               record.images.front());
  if (options.audio.empty() && !record.audio.empty())
    return bad(record, BadKind::no_encoder, "the model has no audio encoder", record.audio.front());
  if (auto fault = find_marker_fault(record, "image", text.image_markers(), record.images.size()))
    return fault;
  if (auto fault = find_marker_fault(record, "audio", text.audio_markers(), record.audio.size()))
    return fault;

  // An empty answer still has an end mark, but training on that alone teaches silence.
  const auto answers = std::count_if(record.turns.begin(), record.turns.end(),
                                     [](const Turn& t) { return t.role == Role::assistant; });
  if (answers == 0)
    return bad(record, BadKind::no_trained_token, "there is no assistant turn to train on");
  if (text.trained_tokens == answers)
    return bad(record, BadKind::no_trained_token, "every assistant turn is empty");
  return std::nullopt;
}

}  // namespace troupe::data
