#include "runtime/job/document.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace troupe::job {

namespace {

constexpr std::array<std::string_view, 4> kDurationKeys{"steps", "epochs", "samples", "tokens"};

bool is_duration(std::string_view key) {
  return std::find(kDurationKeys.begin(), kDurationKeys.end(), key) != kDurationKeys.end();
}

/// Forgets how long to train if `over`, a later `[train]`, says it anew.
void drop_old_duration(Value::Table& base, const Value::Table& over) {
  if (std::none_of(over.begin(), over.end(), [](const auto& m) { return is_duration(m.key); }))
    return;
  std::erase_if(base, [](const Member& member) { return is_duration(member.key); });
}

void merge_at(Value& base, const Value& over) {
  auto* base_table = base.table();
  const auto* over_table = over.table();
  if (!base_table || !over_table) {
    base = over;
    return;
  }
  for (const auto& member : *over_table) {
    if (Value* old = base.find(member.key))
      merge_at(*old, member.value);
    else
      base_table->push_back(member);
  }
}

/// `data.sources[0].json` as data, sources, 0, json.
std::optional<std::vector<std::string>> segments(const std::string& path) {
  std::vector<std::string> parts(1);
  bool closed = false;  // Just behind a ']': a dot or another index must follow.
  for (const char c : path) {
    if (c == '.' || c == '[') {
      if (parts.back().empty()) return std::nullopt;
      parts.emplace_back();
      closed = false;
    } else if (c == ']') {
      if (parts.back().empty() || closed) return std::nullopt;
      closed = true;
    } else {
      if (closed) return std::nullopt;
      parts.back() += c;
    }
  }
  if (parts.back().empty() || parts.size() > kKeyPartsMax) return std::nullopt;
  return parts;
}

Error bad_path(const std::string& path, std::string why, std::string fix) {
  return Error{Errc::invalid_argument, "`" + path + "`: " + std::move(why), "command line",
               std::move(fix)};
}

/// The value below `parent` at `segment`, made where a table lacks it; nullptr where impossible.
Value* descend(Value& parent, const std::string& segment) {
  if (auto* list = parent.array()) {
    std::size_t index = 0;
    const auto end = segment.data() + segment.size();
    const auto parsed = std::from_chars(segment.data(), end, index);
    const bool good = parsed.ec == std::errc{} && parsed.ptr == end && index < list->size();
    return good ? &(*list)[index] : nullptr;
  }
  auto* members = parent.table();
  if (!members) return nullptr;
  if (Value* found = parent.find(segment)) return found;
  members->push_back({segment, Value{Value::Table{}, parent.source, parent.line, {}}});
  return &members->back().value;
}

}  // namespace

std::string Value::where() const {
  return line > 0 ? source->name + ":" + std::to_string(line) : source->name;
}

std::string Value::shown() const {
  struct Show {
    std::string operator()(bool x) const { return x ? "true" : "false"; }
    std::string operator()(std::int64_t x) const { return "the integer " + std::to_string(x); }
    std::string operator()(double x) const {
      std::array<char, 32> text{};
      const auto end = std::to_chars(text.data(), text.data() + text.size(), x).ptr;
      return "the number " + std::string(text.data(), end);
    }
    std::string operator()(const std::string& x) const {
      return "the string \"" + (x.size() > 40 ? x.substr(0, 37) + "..." : x) + "\"";
    }
    std::string operator()(const Array&) const { return "a list"; }
    std::string operator()(const Table&) const { return "a table"; }
  };
  return std::visit(Show{}, data);
}

const Value* Value::find(std::string_view key) const {
  const auto* members = table();
  if (!members) return nullptr;
  const auto found = std::find_if(members->begin(), members->end(),
                                  [&](const Member& member) { return member.key == key; });
  return found == members->end() ? nullptr : &found->value;
}

Value* Value::find(std::string_view key) {
  return const_cast<Value*>(std::as_const(*this).find(key));
}

void merge(Value& base, const Value& over) {
  if (const Value* train = over.find("train"))
    if (Value* old = base.find("train"))
      if (old->table() && train->table()) drop_old_duration(*old->table(), *train->table());
  merge_at(base, over);
}

Status set(Value& root, const std::string& path, const Value& value) {
  const auto parts = segments(path);
  if (!parts) return bad_path(path, "no key path", "write section.key=value, as train.steps=10");
  Value* at = &root;
  for (const auto& part : *parts) {
    Value* next = descend(*at, part);
    if (next == nullptr && at->array() != nullptr)
      return bad_path(path,
                      "'" + part + "' is no index of a list of " +
                          std::to_string(at->array()->size()) + " (they count from 0)",
                      "name an element that the job file has, or give the whole list: key=[...]");
    if (next == nullptr)
      return bad_path(path, "'" + part + "' lies below " + at->shown() + ", which has no keys",
                      "leave out what follows the value's own key");
    at = next;
  }
  *at = value;
  return Done{};
}

}  // namespace troupe::job
