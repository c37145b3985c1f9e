#include "runtime/job/toml_text.hpp"

#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

namespace troupe::job {

namespace {

using SourcePtr = std::shared_ptr<const Source>;

/// Walks over strings and comments of TOML text, line by line as far as needed.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  /// The line of the first byte beyond ASCII outside of strings and comments; 0 if there is none.
  std::int32_t first_foreign_line() {
    return first_line([](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  }

  /// The line of the first key with more parts than `kKeyPartsMax`; 0 if there is none.
  std::int32_t first_deep_line() {
    std::size_t dots = 0;
    return first_line([&dots](char c) {
      constexpr std::string_view kEndsKey = "\n=,{}[]";
      dots = kEndsKey.find(c) != std::string_view::npos ? 0 : dots + (c == '.' ? 1 : 0);
      return dots >= kKeyPartsMax;
    });
  }

 private:
  /// The line of the first character outside of strings and comments that `is_wanted`; 0: none.
  template <class Wanted>
  std::int32_t first_line(Wanted is_wanted) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        skip_comment();
      } else if (c == '"' || c == '\'') {
        skip_string(c);
      } else {
        if (is_wanted(c)) return line_;
        step();
      }
    }
    return 0;
  }

  void step() { line_ += text_[at_++] == '\n' ? 1 : 0; }

  void skip_comment() {
    while (at_ < text_.size() && text_[at_] != '\n') step();
  }

  /// Also leaves an unterminated one-line string at its line's end; the parser will report it.
  void skip_string(char quote) {
    const std::string triple(3, quote);
    const bool is_long = text_.substr(at_, 3) == triple;
    at_ += is_long ? 3 : 1;
    while (at_ < text_.size()) {
      if (is_long && text_.substr(at_, 3) == triple) {
        at_ += 3;
        return;
      }
      if (!is_long && (text_[at_] == quote || text_[at_] == '\n')) return step();
      if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) step();
      step();
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::int32_t line_ = 1;
};

Value convert(const toml::node& node, const SourcePtr& source);

Value::Table convert_table(const toml::table& table, const SourcePtr& source) {
  struct Placed {
    toml::source_position position;
    Member member;
  };
  std::vector<Placed> placed;
  for (const auto& [key, node] : table)
    placed.push_back({key.source().begin, {std::string(key.str()), convert(node, source)}});
  // toml++ sorts by key; modules keep the order in which the user wrote them.
  std::stable_sort(placed.begin(), placed.end(),
                   [](const Placed& a, const Placed& b) { return a.position < b.position; });
  Value::Table members;
  for (auto& entry : placed) {
    entry.member.value.line = static_cast<std::int32_t>(entry.position.line);
    members.push_back(std::move(entry.member));
  }
  return members;
}

Value convert(const toml::node& node, const SourcePtr& source) {
  Value value{false, source, static_cast<std::int32_t>(node.source().begin.line), {}};
  if (const auto* table = node.as_table()) {
    value.data = convert_table(*table, source);
  } else if (const auto* list = node.as_array()) {
    Value::Array items;
    for (const auto& item : *list) items.push_back(convert(item, source));
    value.data = std::move(items);
  } else if (const auto* text = node.as_string()) {
    value.data = text->get();
  } else if (const auto* integer = node.as_integer()) {
    value.data = integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    value.data = number->get();
  } else if (const auto* boolean = node.as_boolean()) {
    value.data = boolean->get();
  } else {
    std::ostringstream text_of_date;
    node.visit([&](const auto& date) {
      if constexpr (toml::is_chronological<decltype(date)>) text_of_date << date.get();
    });
    value.data = text_of_date.str();
  }
  return value;
}

}  // namespace

Result<Value> parse_toml(const std::string& text, const SourcePtr& source) {
  // toml++ 3.3 runs into undefined behaviour on some broken Unicode in bare keys, which TOML 1.0
  // does not allow anyway.
  const std::size_t mark = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  const std::string_view body = std::string_view(text).substr(mark);
  if (const auto line = Scanner{body}.first_foreign_line(); line > 0)
    return Error{Errc::invalid_argument, "a character beyond ASCII outside of strings and comments",
                 source->name + ":" + std::to_string(line), "put the text in quotes"};
  // The parser's tables stand in one another, and so do the calls that take them apart.
  if (const auto line = Scanner{body}.first_deep_line(); line > 0)
    return Error{Errc::invalid_argument,
                 "a key of more than " + std::to_string(kKeyPartsMax) + " parts",
                 source->name + ":" + std::to_string(line),
                 "keys of a job are short, such as modules.llm.config.num_hidden_layers"};
  try {
    const toml::table table = toml::parse(body, source->name);
    return Value{convert_table(table, source), source, 1, {}};
  } catch (const toml::parse_error& e) {
    return Error{Errc::invalid_argument, "not TOML: " + std::string(e.description()),
                 source->name + ":" + std::to_string(e.source().begin.line),
                 "correct this line; strings need quotes, tables start with [name]"};
  }
}

Result<Value> parse_override(const std::string& text, const SourcePtr& source) {
  Value value{text, source, 0, text};
  const auto parsed = parse_toml("x = " + text, source);
  if (parsed.ok()) {
    const auto* members = parsed.value().table();
    if (members->size() == 1) value.data = members->front().value.data;
    return value;
  }
  if (!text.empty() && std::string_view("[{\"'").find(text.front()) != std::string_view::npos)
    return Error{Errc::invalid_argument, "'" + text + "' is not a TOML value", source->name,
                 "lists are [1, 2], tables {a = 1}, strings \"text\"; quote them for the shell"};
  return value;
}

std::string toml_string(const std::string& text) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += std::string("\\") + c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += std::string("\\u00") + kHex[byte / 16] + kHex[byte % 16];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string toml_number(double number) {
  std::array<char, 40> buffer{};
  std::string text(buffer.data(),
                   std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace troupe::job
