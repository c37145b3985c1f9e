#include "runtime/vocabulary/printable.hpp"

#include <cstddef>

namespace troupe {

namespace {

/// Two or three bytes of UTF-8 at the start of `text` as a code point; 0 where there are none.
unsigned code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto follows = [&](std::size_t i) { return i < text.size() && (byte(i) & 0xc0) == 0x80; };
  if (text.size() >= 2 && (byte(0) & 0xe0) == 0xc0 && follows(1))
    return (byte(0) & 0x1fU) << 6 | (byte(1) & 0x3fU);
  if (text.size() >= 3 && (byte(0) & 0xf0) == 0xe0 && follows(1) && follows(2))
    return (byte(0) & 0x0fU) << 12 | (byte(1) & 0x3fU) << 6 | (byte(2) & 0x3fU);
  return 0;
}

/// Whether a code point beyond ASCII acts on a terminal.
bool acts(unsigned code) {
  const bool control = code >= 0x80 && code <= 0x9f;
  const bool mark = code == 0x061c || code == 0x200e || code == 0x200f;
  const bool embedding = code >= 0x202a && code <= 0x202e;
  const bool isolate = code >= 0x2066 && code <= 0x2069;
  return control || mark || embedding || isolate;
}

std::string hexadecimal(unsigned value, int digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += kDigits[value >> shift & 15];
  return text;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) {
      shown += "\\x" + hexadecimal(byte, 2);
    } else if (const unsigned code = code_point(text.substr(i)); acts(code)) {
      shown += "\\u" + hexadecimal(code, 4);
      i += code < 0x800 ? 1 : 2;
    } else {
      shown += text[i];
    }
  }
  return shown;
}

}  // namespace troupe
