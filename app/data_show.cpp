#include <iostream>

#include "app/data_commands.hpp"
#include "app/terminal.hpp"
#include "runtime/data/decode_sample.hpp"
#include "runtime/data/epoch_order.hpp"

namespace troupe::app {

namespace {

using data::ByteTokenizer;

bool is_media(data::TokenId token) {
  return token == ByteTokenizer::kImage || token == ByteTokenizer::kAudio;
}

/// Line breaks as `\n`; other control characters, which could do anything to a terminal, as `?`.
std::string printable(const std::string& text) {
  std::string shown;
  for (const char c : text) {
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    shown += c == '\n' ? "\\n" : is_control ? "?" : std::string(1, c);
  }
  return shown;
}

/// Writes tokens as text, media rows as `<image x64>`, one per marker.
class TokenPrinter {
 public:
  TokenPrinter(std::span<const TokenCount> image_rows, std::span<const TokenCount> audio_rows)
      : image_rows_(image_rows), audio_rows_(audio_rows) {}

  void print(const data::ExpandedText& text) {
    const bool colours = stdout_has_colours();
    for (std::size_t i = 0; i < text.tokens.size();) {
      const bool trained = text.labels[i] != data::kIgnoreLabel;
      std::size_t end = i;
      while (end < text.tokens.size() && (text.labels[end] != data::kIgnoreLabel) == trained) ++end;
      const auto part = readable(std::span(text.tokens).subspan(i, end - i));
      if (colours)
        std::cout << (trained ? "\x1b[1;32m" : "\x1b[2m") << part << "\x1b[0m";
      else
        std::cout << (i == 0 ? "" : " ") << (trained ? "[TRAINED] " : "[ignored] ") << part;
      i = end;
    }
    std::cout << '\n';
  }

 private:
  /// REQUIRES: no marker's rows are cut by the end of `tokens` (all carry the same label).
  std::string readable(std::span<const data::TokenId> tokens) {
    std::string text;
    for (std::size_t i = 0; i < tokens.size();) {
      std::size_t end = i;
      if (is_media(tokens[i])) {
        const bool is_image = tokens[i] == ByteTokenizer::kImage;
        auto& rows = is_image ? image_rows_ : audio_rows_;
        text +=
            std::string(is_image ? "<image x" : "<audio x") + std::to_string(rows.front()) + ">";
        end = i + static_cast<std::size_t>(rows.front());
        rows = rows.subspan(1);
      } else {
        while (end < tokens.size() && !is_media(tokens[end])) ++end;
        text += printable(ByteTokenizer::decode(tokens.subspan(i, end - i)));
      }
      i = end;
    }
    return text;
  }

  std::span<const TokenCount> image_rows_;  // Of markers not yet printed.
  std::span<const TokenCount> audio_rows_;
};

/// Files, lengths, and the conversation as tokens.
Status print_sample(const data::Record& record, const data::DecodedSample& sample,
                    const engine::JobSetup& setup) {
  std::cout << record.id << "  (" << record.where << ")  " << sample.llm_tokens << " llm tokens, "
            << sample.trained_tokens << " trained\n";
  for (std::size_t i = 0; i < record.images.size(); ++i)
    std::cout << "  image " << record.images[i] << ": " << sample.images[i].grid_height << " x "
              << sample.images[i].grid_width << " patches\n";
  for (std::size_t i = 0; i < record.audio.size(); ++i) {
    std::int64_t frames = 0;
    for (const auto& window : sample.audio)
      if (window.marker == static_cast<std::int32_t>(i)) frames += window.frames;
    std::cout << "  audio " << record.audio[i] << ": " << static_cast<double>(frames) / 100
              << " s\n";
  }
  const auto modules = engine::media_modules(setup);
  const auto shape = data::shape_of(sample, setup.data, modules);
  const auto image_rows =
      data::rows_per_marker(shape.items(modules.vision), sample.text.image_markers);
  const auto audio_rows =
      data::rows_per_marker(shape.items(modules.audio), sample.text.audio_markers);
  const auto text = data::expand_text(sample.text, image_rows, audio_rows);
  if (!text.ok()) return text.error();
  TokenPrinter{image_rows, audio_rows}.print(text.value());
  return Done{};
}

}  // namespace

int show_data(const DataOptions& options) {
  const auto opened = open_data(options.job);
  if (!opened.ok()) return report(opened.error());
  const auto& dataset = *opened.value().dataset;
  const auto& setup = opened.value().setup;
  const auto order = data::record_order(setup.data, 0, dataset.size());
  std::int64_t left = options.samples;
  std::int64_t skip = options.skip;
  for (const auto index : order) {
    const auto& record = dataset[index];
    if (!options.only_id.empty() && record.id != options.only_id) continue;
    if (skip-- > 0) continue;
    if (left-- == 0) break;
    const auto outcome = data::decode_sample(dataset, record, setup.data);
    if (const auto* bad = std::get_if<data::BadSample>(&outcome)) {
      std::cout << "BAD " << to_string(*bad) << "\n\n";
      continue;
    }
    const auto printed = print_sample(record, std::get<data::DecodedSample>(outcome), setup);
    if (!printed.ok()) return report(printed.error());
    std::cout << '\n';
  }
  if (left == options.samples)
    return report({Errc::invalid_argument, "no such sample among " + std::to_string(dataset.size()),
                   "troupe data show", "leave --id and --skip out to see the first ones"});
  return kDone;
}

}  // namespace troupe::app
