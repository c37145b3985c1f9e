#include "runtime/data/samples/show_sample.hpp"

#include <cstdio>
#include <string_view>

#include "runtime/vocabulary/printable.hpp"

namespace troupe::data {
namespace {

/// Length of the UTF-8 character that `bytes` begins with; 0 where it is broken.
std::size_t character_length(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes.front());
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xC2 && first < 0xE0 ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  if (length > bytes.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(bytes[i]) & 0xC0) != 0x80) return 0;
  return length;
}

void append_readable(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t length = character_length(bytes);
    const auto first = static_cast<unsigned char>(bytes.front());
    if (first == '\n') {
      out += "\\n";
    } else if (bytes.starts_with("<|")) {
      out += "\\<";  // Else text could pass for a special token.
    } else if (length == 0 || first < 0x20 || first == 0x7F) {
      char code[8];
      std::snprintf(code, sizeof code, "\\x%02X", first);
      out += code;
    } else {
      out += printable(bytes.substr(0, length));
    }
    bytes.remove_prefix(length == 0 ? 1 : length);
  }
}

/// Tokens [begin, end) as text; equal media placeholders in a row as one with their number.
std::string run_text(std::span<const TokenId> tokens) {
  std::string text;
  for (std::size_t at = 0; at < tokens.size();) {
    const TokenId token = tokens[at];
    std::size_t end = at;
    if (token >= 0 && token < 256) {
      while (end < tokens.size() && tokens[end] >= 0 && tokens[end] < 256) ++end;
      append_readable(ByteTokenizer::decode(tokens.subspan(at, end - at)), text);
    } else if (token == ByteTokenizer::kImage || token == ByteTokenizer::kAudio) {
      while (end < tokens.size() && tokens[end] == token) ++end;
      text += (token == ByteTokenizer::kImage ? "<|image| x " : "<|audio| x ") +
              std::to_string(end - at) + ">";
    } else {
      text += ByteTokenizer::decode(tokens.subspan(at, 1));
      end = at + 1;
    }
    at = end;
  }
  return text;
}

std::string media_lines(const DecodedSample& sample, const DataOptions& options) {
  std::string text;
  const auto of = [](const auto& encoders, std::size_t encoder) {
    return encoders.size() > 1 ? " of " + encoders[encoder].module : std::string();
  };
  for (std::size_t encoder = 0; encoder < sample.images.size(); ++encoder)
    for (const auto& image : sample.images[encoder]) {
      const auto shape =
          image_shape(image.grid_height, image.grid_width, options.vision[encoder].input, 0);
      text += "  image: " + std::to_string(image.grid_width) + " x " +
              std::to_string(image.grid_height) + " patches -> " +
              std::to_string(shape.output_rows) + " rows" + of(options.vision, encoder) + "\n";
    }
  for (std::size_t encoder = 0; encoder < sample.audio.size(); ++encoder)
    for (const auto& window : sample.audio[encoder]) {
      const auto shape = audio_shape(window.frames, options.audio[encoder].input, window.marker);
      text += "  audio " + std::to_string(window.marker) + ": " + std::to_string(window.frames) +
              " frames -> " + std::to_string(shape.output_rows) + " rows" +
              of(options.audio, encoder) + "\n";
    }
  return text;
}

Result<ExpandedText> expand(const DecodedSample& sample, const DataOptions& options) {
  MediaModules modules;
  for (std::size_t encoder = 0; encoder < options.vision.size(); ++encoder)
    modules.vision.push_back(ModuleId{encoder});
  for (std::size_t encoder = 0; encoder < options.audio.size(); ++encoder)
    modules.audio.push_back(ModuleId{options.vision.size() + encoder});
  const SampleShape shape = shape_of(sample, options, modules);
  MarkerRows images, audio;
  for (const ModuleId module : modules.vision)
    images.push_back(rows_per_marker(shape.items(module), sample.text.image_markers));
  for (const ModuleId module : modules.audio)
    audio.push_back(rows_per_marker(shape.items(module), sample.text.audio_markers));
  return expand_text(sample.text, images, audio);
}

}  // namespace

std::string show_tokens(const ExpandedText& text, bool colour) {
  std::string out;
  for (std::size_t at = 0; at < text.tokens.size();) {
    const bool is_trained = text.labels[at] != kIgnoreLabel;
    std::size_t end = at;
    while (end < text.tokens.size() && (text.labels[end] != kIgnoreLabel) == is_trained) ++end;
    const std::string run = run_text(std::span(text.tokens).subspan(at, end - at));
    const char* const start = !colour ? "" : is_trained ? "\x1b[32m" : "\x1b[2m";
    out += std::string(is_trained ? "[TRAINED] " : "[ignored] ") + start + run +
           (colour ? "\x1b[0m" : "") + "\n";
    at = end;
  }
  return out;
}

std::string show_sample(const DecodeOutcome& outcome, const DataOptions& options, bool colour) {
  if (const auto* bad = std::get_if<BadSample>(&outcome))
    return "BAD " + printable(to_string(*bad)) + "\n";
  const auto& sample = std::get<DecodedSample>(outcome);
  const std::string name = "sample " + printable(sample.id) + ": ";
  auto expanded = expand(sample, options);
  if (!expanded) return name + to_string(expanded.error()) + "\n";
  return name + std::to_string(sample.llm_tokens) + " tokens, " +
         std::to_string(sample.trained_tokens) + " trained\n" + media_lines(sample, options) +
         show_tokens(expanded.value(), colour);
}

}  // namespace troupe::data
