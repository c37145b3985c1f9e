#include "runtime/data/formats/registry.hpp"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/data/formats/llava_json.hpp"
#include "runtime/plugins/user_calls.hpp"
#include "runtime/vocabulary/named_list.hpp"
#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::data {

namespace {

constexpr const char* kBuiltIn = "llava";

NamedList<Format>& formats() {
  static NamedList<Format> all({{kBuiltIn, read_llava_json}});
  return all;
}

Error blamed(const std::string& format, const std::string& what, const std::string& fix) {
  return {Errc::invalid_argument, "format '" + format + "' " + what, "data.sources", fix};
}

bool is_utf8(const std::string& text) {
  try {
    return nlohmann::json(text).dump().size() >= text.size();
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

/// Why a record of an added format cannot be a sample; empty: it can, as far as its text goes.
std::string defect_of(const Record& record) {
  if (record.turns.empty()) return "there is no turn of a conversation";
  for (std::size_t i = 0; i < record.turns.size(); ++i) {
    const Turn& turn = record.turns[i];
    const std::string name = "turn " + std::to_string(i + 1);
    if (turn.role == Role::system && i > 0)
      return name + " is a system turn, which may only be first";
    if (!is_utf8(turn.text)) return name + " is no UTF-8";
  }
  for (const auto* paths : {&record.images, &record.audio})
    for (const auto& path : *paths)
      if (path.empty()) return "the path of a picture or sound is empty";
  return {};
}

/// What an added format returned, with all that may be left out.
Result<std::vector<Record>> completed(std::vector<Record> records, const std::string& file) {
  const auto refused = [&](std::string what) {
    return Error{Errc::bad_data, std::move(what), file, {}};
  };
  if (records.empty()) return refused("finds no record");
  for (std::size_t i = 0; i < records.size(); ++i) {
    Record& record = records[i];
    const std::string place = file + "#" + std::to_string(i);
    if (record.id.empty()) record.id = place;
    if (record.where.empty()) record.where = place;
    if (!is_utf8(record.id) || !is_utf8(record.where))
      return refused("makes an id or place that is no UTF-8, of record " + std::to_string(i));
    if (record.defect.empty()) record.defect = defect_of(record);
    if (!is_utf8(record.defect)) record.defect = "a defect that is told in no UTF-8";
  }
  return records;
}

/// Code of the user's may throw.
Result<std::vector<Record>> asked(const Format& format, std::string_view text,
                                  const std::string& file) {
  const plugins::CallingUser call("`read` of format '" + format.name + "' on " + file);
  try {
    return format.read(text, file);
  } catch (const std::exception& fault) {
    return Error{Errc::bad_data, std::string("throws: ") + fault.what(), file, {}};
  } catch (...) {
    return Error{Errc::bad_data, "throws no std::exception", file, {}};
  }
}

}  // namespace

Status register_format(Format format) {
  const std::string name = format.name;
  if (!is_list_name(name))
    return blamed(name, "has no name for a job file", "use small letters, digits, `-` and `_`");
  if (!format.read) return blamed(name, "has no `read`", "set it");
  if (!formats().add(std::move(format)))
    return blamed(name, "is there already", "choose another name, or register it once");
  return Done{};
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const Format* format : formats().all()) names.push_back(format->name);
  return names;
}

Status check_format(const std::string& name) {
  if (formats().find(name) != nullptr) return Done{};
  return Error{
      Errc::invalid_argument, "unknown format '" + name + "'", {}, name_fix(name, format_names())};
}

Result<std::vector<Record>> read_records(const std::string& format, std::string_view text,
                                         const std::string& file) {
  if (auto known = check_format(format); !known.ok()) return known.error();
  const Format* known = formats().find(format);
  if (format == kBuiltIn) return known->read(text, file);
  auto records = asked(*known, text, file);
  if (records.ok()) records = completed(std::move(records).value(), file);
  if (records.ok()) return records;
  Error fault = records.error();
  fault.code = Errc::bad_data;
  fault.message = "format '" + format + "' " + fault.message;
  if (fault.where.empty()) fault.where = file;
  if (fault.fix.empty()) fault.fix = "correct the file, or the plug-in that reads it";
  return fault;
}

}  // namespace troupe::data
