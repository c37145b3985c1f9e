// What planners know about a sample: lengths, never contents.

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/units.hpp"

namespace troupe {

/// One image or one audio window on its way through an encoder.
struct MediaShape {
  std::int32_t input_rows = 0;   ///< Patches or mel frames that enter the encoder.
  std::int32_t hidden_rows = 0;  ///< Rows between encoder layers (patches; frames / 2 rounded up).
  std::int32_t output_rows = 0;  ///< Rows handed to the llm (merged patches; frames / 2).
  std::int32_t grid_height = 0;  ///< Vision: patches per column; 0 for audio.
  std::int32_t grid_width = 0;   ///< Vision: patches per row; 0 for audio.
  std::int32_t marker = 0;  ///< Which marker of its kind it belongs to: all windows of one long
                            ///< clip share one; ascending within a sample.

  friend auto operator<=>(const MediaShape&, const MediaShape&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, MediaShape& x) {
    return f(x.input_rows, x.hidden_rows, x.output_rows, x.grid_height, x.grid_width, x.marker);
  }
};

/// The items of one sample that one encoder takes, in the order of their markers.
struct ModuleMedia {
  ModuleId module;
  std::vector<MediaShape> items;
  std::int32_t columns = 0;  ///< Of the rows that enter the encoder; 0: nobody said.
  /// Of pictures: so many times each row repeats the values of 8-bit pixels, in three channels, of
  /// which they can be made again. 0: rows are of something else, or nobody said.
  std::int32_t equal_frames = 0;

  friend bool operator==(const ModuleMedia&, const ModuleMedia&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, ModuleMedia& x) {
    return f(x.module, x.items, x.columns, x.equal_frames);
  }
};

/// Where rows of a medium stand in the llm's sequence: its marker in the text.
struct MediaMarker {
  ModuleId module;             ///< The encoder that takes it.
  TokenCount text_before = 0;  ///< Tokens of text before it in the sample, no rows of media.

  friend bool operator==(const MediaMarker&, const MediaMarker&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, MediaMarker& x) {
    return f(x.module, x.text_before);
  }
};

/// One sample of a batch. `position` is its place in the epoch's order; ids are unique in the data.
struct SampleShape {
  std::int64_t position = 0;
  std::string id;
  std::vector<ModuleMedia> media;  ///< Only encoders that have items; ascending module.
  TokenCount llm_tokens = 0;       ///< Tokens of its llm sequence, media rows included; >= 1.
  TokenCount trained_tokens = 0;   ///< Labels that carry loss; >= 1.
  /// In the order of the text: the k-th one of a module is where its items of marker k stand.
  std::vector<MediaMarker> markers = {};
  /// Nodes that can decode it, ascending: those that see its source of data. None: all of them.
  std::vector<NodeId> seen_by = {};
  /// Of these, the one that decodes it for stages on nodes that cannot. Invalid: nobody has to.
  NodeId decoder = {};

  /// Whether a node can decode it.
  bool is_seen_by(NodeId node) const {
    return seen_by.empty() || std::binary_search(seen_by.begin(), seen_by.end(), node);
  }

  /// Items for one encoder, or nullptr where the sample has none.
  const std::vector<MediaShape>* items(ModuleId module) const {
    for (const auto& entry : media)
      if (entry.module == module) return &entry.items;
    return nullptr;
  }
  /// Rows this encoder hands to the llm for this sample.
  TokenCount output_rows(ModuleId module) const {
    TokenCount rows = 0;
    if (const auto* list = items(module))
      for (const auto& item : *list) rows += item.output_rows;
    return rows;
  }
  /// Rows between two layers of this encoder for this sample.
  TokenCount hidden_rows(ModuleId module) const {
    TokenCount rows = 0;
    if (const auto* list = items(module))
      for (const auto& item : *list) rows += item.hidden_rows;
    return rows;
  }

  friend bool operator==(const SampleShape&, const SampleShape&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, SampleShape& x) {
    return f(x.position, x.id, x.media, x.llm_tokens, x.trained_tokens, x.markers, x.seen_by,
             x.decoder);
  }
};

}  // namespace troupe
