// One sample as its file describes it: text and the names of its media. Nothing is decoded.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::data {

/// Who speaks. In files: `system`; `human` or `user`; `gpt` or `assistant`.
enum class Role : std::uint8_t { system, user, assistant };

/// One turn of a conversation. The text still holds its `<image>` and `<audio>` markers.
struct Turn {
  Role role = Role::user;
  std::string text;  ///< UTF-8, exactly as in the file.

  friend bool operator==(const Turn&, const Turn&) = default;
};

/// One sample. The k-th `<image>` marker of the conversation stands for `images[k]`, likewise
/// audio.
struct Record {
  std::string id;  ///< Unique in the data set; `FILE#PLACE` where the file gives none.
  std::vector<Turn> turns;
  std::vector<std::string> images;  ///< As written in the file, relative to `media`.
  std::vector<std::string> audio;
  std::int32_t source = 0;  ///< Index into `DataOptions::sources`.
  std::string where;        ///< `file:line` of its first character.
  std::string defect;       ///< Why it cannot be a sample (a turn without text ...); empty: fine.

  friend bool operator==(const Record&, const Record&) = default;
};

}  // namespace troupe::data
