#include "runtime/data/formats/llava_json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace troupe::data {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSpace = " \t\r\n";

/// The text of one record and where it starts.
struct Element {
  std::string_view text;
  std::size_t offset = 0;
};

/// Turns byte offsets into line numbers; offsets must ascend.
class LineCounter {
 public:
  explicit LineCounter(std::string_view text) : text_(text) {}

  std::int64_t line_at(std::size_t offset) {
    line_ += std::count(text_.begin() + static_cast<std::ptrdiff_t>(seen_),
                        text_.begin() + static_cast<std::ptrdiff_t>(offset), '\n');
    seen_ = offset;
    return line_;
  }

 private:
  std::string_view text_;
  std::size_t seen_ = 0;
  std::int64_t line_ = 1;
};

std::string line_and_column(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  const auto before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto start = before.rfind('\n');
  const auto column = start == std::string_view::npos ? offset + 1 : offset - start;
  return std::to_string(line) + ":" + std::to_string(column);
}

Error syntax_error(std::string_view text, const std::string& file, std::size_t offset,
                   std::string message) {
  return {Errc::bad_data, "not JSON: " + std::move(message),
          file + ":" + line_and_column(text, offset),
          "repair the file; `python3 -m json.tool` finds such faults"};
}

/// The end of the array element that starts at `begin`: the comma or bracket after it.
std::size_t find_element_end(std::string_view text, std::size_t begin) {
  std::int64_t depth = 0;
  bool in_string = false;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
      continue;
    }
    if (c == '"')
      in_string = true;
    else if (c == '{' || c == '[')
      ++depth;
    else if (depth > 0 && (c == '}' || c == ']'))
      --depth;
    else if (depth == 0 && (c == ',' || c == ']'))
      return i;
  }
  return std::string_view::npos;
}

// The elements are found first and parsed one by one: no document of the whole file in memory,
// and every record knows its line.
Result<std::vector<Element>> split_array(std::string_view text, const std::string& file,
                                         std::size_t open) {
  std::vector<Element> elements;
  std::size_t at = text.find_first_not_of(kSpace, open + 1);
  if (at != std::string_view::npos && text[at] == ']') return elements;
  while (true) {
    if (at == std::string_view::npos)
      return syntax_error(text, file, text.size(), "the array is not closed");
    const std::size_t end = find_element_end(text, at);
    if (end == std::string_view::npos)
      return syntax_error(text, file, at, "the file ends inside the record that starts here");
    elements.push_back({text.substr(at, end - at), at});
    if (text[end] == ']') {
      const auto rest = text.find_first_not_of(kSpace, end + 1);
      if (rest != std::string_view::npos)
        return syntax_error(text, file, rest, "there is text after the end of the array");
      return elements;
    }
    at = text.find_first_not_of(kSpace, end + 1);
  }
}

std::vector<Element> split_lines(std::string_view text, std::size_t from) {
  std::vector<Element> elements;
  while (from < text.size()) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    const auto line = text.substr(from, end - from);
    if (line.find_first_not_of(kSpace) != std::string_view::npos) elements.push_back({line, from});
    from = end + 1;
  }
  return elements;
}

/// The library's text without its code: "[json.exception.parse_error.101] parse error at ..: why".
std::string reason_of(const Json::exception& fault) {
  std::string why = fault.what();
  const auto colon = why.find(": ");
  const auto bracket = why.find("] ");
  if (colon != std::string::npos) return why.substr(colon + 2);
  return bracket == std::string::npos ? why : why.substr(bracket + 2);
}

std::string read_path(const Json& path, const char* field, std::vector<std::string>& out) {
  if (!path.is_string())
    return std::string("'") + field + "' holds a " + path.type_name() + " instead of a path";
  if (path.get_ref<const std::string&>().empty())
    return std::string("'") + field + "' holds an empty path";
  out.push_back(path.get<std::string>());
  return {};
}

/// A field's paths: a string, a list of strings, null or absent. Empty when fine, else the defect.
/// Never by a copy of the value: the library copies what stands in it by recursion, and a list that
/// is deep enough would end the process.
std::string read_paths(const Json& object, const char* field, std::vector<std::string>& out) {
  const auto found = object.find(field);
  if (found == object.end() || found->is_null()) return {};
  if (!found->is_array()) return read_path(*found, field, out);
  for (const auto& path : *found)
    if (auto defect = read_path(path, field, out); !defect.empty()) return defect;
  return {};
}

/// How other formats call media. A record with such a key was made for another reader: taken as it
/// is, it would be trained on without them.
struct MediaKey {
  std::string_view name;
  std::string_view ours;  ///< Empty: media that no encoder takes.
};
constexpr MediaKey kForeignMediaKeys[] = {
    {"images", "image"},     {"image_path", "image"},  {"image_paths", "image"},
    {"img", "image"},        {"picture", "image"},     {"audios", "audio"},
    {"audio_path", "audio"}, {"audio_paths", "audio"}, {"sound", "audio"},
    {"speech", "audio"},     {"wav", "audio"},         {"video", ""},
    {"videos", ""},          {"video_path", ""},       {"video_paths", ""},
};

std::string find_foreign_media(const Json& object) {
  for (const auto& [name, ours] : kForeignMediaKeys) {
    const auto found = object.find(name);
    if (found == object.end() || found->empty() || *found == "") continue;
    const std::string key = "'" + std::string(name) + "'";
    if (ours.empty()) return key + " names media that no encoder takes";
    return key + " is not read: media stand under '" + std::string(ours) + "'";
  }
  return {};
}

std::optional<Role> role_named(std::string_view name) {
  if (name == "human" || name == "user") return Role::user;
  if (name == "gpt" || name == "assistant") return Role::assistant;
  if (name == "system") return Role::system;
  return std::nullopt;
}

std::string read_turn(const Json& turn, std::size_t place, std::vector<Turn>& out) {
  const std::string name = "turn " + std::to_string(place + 1);
  if (!turn.is_object()) return name + " is a " + turn.type_name() + " instead of an object";
  const auto from = turn.find("from");
  const auto value = turn.find("value");
  if (from == turn.end() || !from->is_string()) return name + " has no 'from' with a speaker";
  if (value == turn.end() || !value->is_string()) return name + " has no 'value' with its text";
  const auto role = role_named(from->get_ref<const std::string&>());
  if (!role)
    return name + " has the unknown speaker '" + from->get<std::string>() +
           "' (known: system, human, user, gpt, assistant)";
  if (*role == Role::system && place > 0)
    return name + " is a system turn, which may only be first";
  out.push_back({*role, value->get<std::string>()});
  return {};
}

std::string read_turns(const Json& object, std::vector<Turn>& out) {
  const auto found = object.find("conversations");
  if (found == object.end()) return "there is no 'conversations'";
  if (!found->is_array())
    return std::string("'conversations' is a ") + found->type_name() + " instead of a list";
  if (found->empty()) return "'conversations' is empty";
  for (std::size_t i = 0; i < found->size(); ++i)
    if (auto defect = read_turn((*found)[i], i, out); !defect.empty()) return defect;
  return {};
}

/// Sets the record's id where the file gives one; returns the defect of an id of a wrong type.
std::string read_id(const Json& object, std::string& id) {
  const auto found = object.find("id");
  if (found == object.end() || found->is_null()) return {};
  if (found->is_number_integer())
    id = found->dump();
  else if (!found->is_string())
    return std::string("'id' is a ") + found->type_name();
  else if (!found->get_ref<const std::string&>().empty())
    id = found->get<std::string>();
  return {};
}

Record read_record(const Json& object, std::string made_id, std::string where) {
  Record record;
  record.id = std::move(made_id);
  record.where = std::move(where);
  if (!object.is_object()) {
    record.defect = std::string("the record is a ") + object.type_name() + ", not an object";
    return record;
  }
  record.defect = read_id(object, record.id);
  if (record.defect.empty()) record.defect = read_paths(object, "image", record.images);
  if (record.defect.empty()) record.defect = read_paths(object, "audio", record.audio);
  if (record.defect.empty()) record.defect = find_foreign_media(object);
  if (record.defect.empty()) record.defect = read_turns(object, record.turns);
  return record;
}

}  // namespace

Result<std::vector<Record>> read_llava_json(std::string_view text, const std::string& file) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos)
    return Error{Errc::bad_data, "the file is empty", file, "check how it was made"};
  if (text[first] != '[' && text[first] != '{')
    return Error{Errc::bad_data, "neither a JSON array nor one JSON object per line", file,
                 "write LLaVA's format: [{\"id\": .., \"conversations\": [..]}, ..]"};

  auto elements = text[first] == '[' ? split_array(text, file, first)
                                     : Result<std::vector<Element>>(split_lines(text, first));
  if (!elements) return elements.error();

  std::vector<Record> records;
  LineCounter lines(text);
  for (const auto& element : elements.value()) {
    const std::string where = file + ":" + std::to_string(lines.line_at(element.offset));
    try {
      const Json object = Json::parse(element.text);
      records.push_back(read_record(object, file + "#" + std::to_string(records.size()), where));
    } catch (const Json::parse_error& fault) {
      return syntax_error(text, file, element.offset + (fault.byte > 0 ? fault.byte - 1 : 0),
                          reason_of(fault));
    } catch (const Json::exception& fault) {  // A number beyond every range.
      return syntax_error(text, file, element.offset, reason_of(fault));
    }
  }
  if (records.empty())
    return Error{Errc::bad_data, "the file holds no record", file, "check how it was made"};
  return records;
}

}  // namespace troupe::data
