#include "runtime/state/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>

namespace troupe::state {

namespace {

using Json = nlohmann::json;

struct TypeRow {
  ElementType type;
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array<TypeRow, 8> kTypes{{{ElementType::f64, "F64", 8},
                                         {ElementType::f32, "F32", 4},
                                         {ElementType::f16, "F16", 2},
                                         {ElementType::bf16, "BF16", 2},
                                         {ElementType::i64, "I64", 8},
                                         {ElementType::i32, "I32", 4},
                                         {ElementType::u8, "U8", 1},
                                         {ElementType::boolean, "BOOL", 1}}};

constexpr std::string_view kMetadata = "__metadata__";

Error bad(std::string message) {
  return {Errc::bad_data, "safetensors header: " + std::move(message), "", ""};
}

// Names come from the file: cut them, so that a message stays readable.
std::string in_quotes(const std::string& name) {
  constexpr std::size_t kNameMax = 120;
  const Json printable = name.size() <= kNameMax ? name : name.substr(0, kNameMax) + "...";
  return printable.dump(-1, ' ', true, Json::error_handler_t::replace);
}

// A JSON integer in [0, 2^63), whichever way the parser stored it.
std::optional<std::int64_t> natural(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return std::nullopt;
  return static_cast<std::int64_t>(number);
}

Status read_shape(const Json& value, TensorEntry& entry) {
  if (!value.is_array()) return bad("tensor " + in_quotes(entry.name) + ": `shape` is not a list");
  for (const auto& size : value) {
    const auto number = natural(size);
    if (!number)
      return bad("tensor " + in_quotes(entry.name) +
                 ": `shape` holds something else than sizes >= 0");
    entry.shape.push_back(*number);
  }
  return Done{};
}

Status read_type(const Json& value, TensorEntry& entry) {
  const auto row = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& known) {
    return value.is_string() && value.get_ref<const std::string&>() == known.name;
  });
  if (row == kTypes.end())
    return bad("tensor " + in_quotes(entry.name) + ": type " +
               value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40) +
               " is not one of F64, F32, F16, BF16, I64, I32, U8, BOOL");
  entry.type = row->type;
  return Done{};
}

Status read_offsets(const Json& value, std::int64_t data_bytes, TensorEntry& entry) {
  if (!value.is_array() || value.size() != 2 || !natural(value[0]) || !natural(value[1]))
    return bad("tensor " + in_quotes(entry.name) + ": `data_offsets` is not [begin, end]");
  entry.begin = *natural(value[0]);
  entry.end = *natural(value[1]);
  if (entry.begin > entry.end || entry.end > data_bytes)
    return bad("tensor " + in_quotes(entry.name) + ": offsets [" + std::to_string(entry.begin) +
               ", " + std::to_string(entry.end) + ") lie outside of the data, " +
               std::to_string(data_bytes) + " bytes");
  return Done{};
}

// Bytes that type and shape ask for; none on overflow.
std::optional<std::int64_t> expected_bytes(const TensorEntry& entry) {
  std::int64_t bytes = element_bytes(entry.type);
  for (const auto size : entry.shape)
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  return bytes;
}

Result<TensorEntry> read_entry(const std::string& name, const Json& value,
                               std::int64_t data_bytes) {
  TensorEntry entry;
  entry.name = name;
  if (!value.is_object())
    return bad("tensor " + in_quotes(name) + " is not described by an object");
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!value.contains(key))
      return bad("tensor " + in_quotes(name) + ": `" + key + "` is missing");
  if (value.size() != 3)
    return bad("tensor " + in_quotes(name) + ": more keys than dtype, shape and data_offsets");
  if (auto read = read_type(value["dtype"], entry); !read) return read.error();
  if (auto read = read_shape(value["shape"], entry); !read) return read.error();
  if (auto read = read_offsets(value["data_offsets"], data_bytes, entry); !read)
    return read.error();
  const auto expected = expected_bytes(entry);
  if (!expected || *expected != entry.bytes())
    return bad("tensor " + in_quotes(name) + ": type and shape need " +
               (expected ? std::to_string(*expected) : std::string("more than 2^63")) +
               " bytes, the offsets hold " + std::to_string(entry.bytes()));
  return entry;
}

Status read_metadata(const Json& value, TensorIndex& index) {
  if (!value.is_object()) return bad("`__metadata__` is not an object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) return bad("`__metadata__`: " + in_quotes(key) + " is not a string");
    index.metadata[key] = text.get<std::string>();
  }
  return Done{};
}

// Sorts by position and refuses holes and overlaps.
Status check_cover(TensorIndex& index, std::int64_t data_bytes) {
  std::sort(index.entries.begin(), index.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::int64_t position = 0;
  for (const auto& entry : index.entries) {
    if (entry.begin != position)
      return bad("tensor " + in_quotes(entry.name) + " begins at byte " +
                 std::to_string(entry.begin) + ", expected " + std::to_string(position) +
                 (entry.begin < position ? ": it overlaps another tensor"
                                         : ": bytes in between belong to no tensor"));
    position = entry.end;
  }
  if (position != data_bytes)
    return bad("tensors end at byte " + std::to_string(position) + " of the data, the file at " +
               std::to_string(data_bytes));
  return Done{};
}

// Deepest nesting of brackets outside of strings; found before parsing, so that a hostile header
// cannot make the parser allocate for each of its brackets.
int nesting(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (in_string) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        in_string = false;
    } else if (text[i] == '"') {
      in_string = true;
    } else if (text[i] == '{' || text[i] == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (text[i] == '}' || text[i] == ']') {
      --depth;
    }
  }
  return deepest;
}

// Parses while it watches for what the parsed value can no longer show: a key that stands twice.
Result<Json> parse_strictly(std::string_view text) {
  constexpr int kNestingMax = 3;
  if (nesting(text) > kNestingMax) return bad("nested too deeply");
  std::vector<std::set<std::string>> keys;
  std::string twice;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.empty() &&
        !keys.back().insert(parsed.get<std::string>()).second && twice.empty())
      twice = "the name " + in_quotes(parsed.get<std::string>()) + " stands twice";
    return true;
  };
  auto parsed = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (!twice.empty()) return bad(twice);
  if (parsed.is_discarded()) return bad("not valid JSON");
  if (!parsed.is_object()) return bad("not a JSON object");
  return parsed;
}

}  // namespace

std::string_view to_string(ElementType type) { return kTypes[static_cast<std::size_t>(type)].name; }

std::int64_t element_bytes(ElementType type) {
  return kTypes[static_cast<std::size_t>(type)].bytes;
}

Result<TensorIndex> parse_tensor_index(std::string_view json, std::int64_t data_bytes) {
  auto parsed = parse_strictly(json);
  if (!parsed) return parsed.error();
  TensorIndex index;
  for (const auto& [name, value] : parsed.value().items()) {
    if (name == kMetadata) {
      if (auto read = read_metadata(value, index); !read) return read.error();
      continue;
    }
    auto entry = read_entry(name, value, data_bytes);
    if (!entry) return entry.error();
    index.entries.push_back(std::move(entry).value());
  }
  if (auto checked = check_cover(index, data_bytes); !checked) return checked.error();
  return index;
}

std::string encode_tensor_index(const TensorIndex& index) {
  // Keeps the order of the entries, as other writers do; the parser above does not need it.
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!index.metadata.empty()) header[std::string(kMetadata)] = index.metadata;
  for (const auto& entry : index.entries)
    header[entry.name] = {{"dtype", to_string(entry.type)},
                          {"shape", entry.shape},
                          {"data_offsets", {entry.begin, entry.end}}};
  std::string text = header.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string bytes(kLengthBytes, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return bytes + text;
}

}  // namespace troupe::state
