#include "app/terminal.hpp"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>

namespace troupe::app {

int report(const Error& error) {
  constexpr int kLinesMax = 5;
  std::istringstream text("troupe: " + to_string(error));
  std::string line;
  for (int i = 0; i < kLinesMax && std::getline(text, line); ++i) std::cerr << line << '\n';
  return exit_code(error);
}

Error usage_error(std::string message, std::string fix) {
  return {Errc::invalid_argument, std::move(message), "command line", std::move(fix)};
}

std::string wrapped(const std::string& text, std::size_t indent, std::size_t columns) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    // A number and its unit stay together.
    const bool is_unit = word[0] == '%' || word.substr(0, word.find_first_of(",;)")) == "ms";
    if (is_unit && !words.empty())
      words.back() += ' ' + word;
    else
      words.push_back(word);
  }
  std::string lines;
  std::size_t used = indent;
  for (const auto& word : words) {
    if (!lines.empty() && used + 1 + word.size() > columns) {
      lines += '\n' + std::string(indent, ' ');
      used = indent;
    } else if (!lines.empty()) {
      lines += ' ';
      ++used;
    }
    lines += word;
    used += word.size();
  }
  return lines;
}

std::string counted(std::int64_t count, const std::string& noun) {
  return with_commas(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string with_commas(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string with_unit(std::int64_t number) {
  static constexpr std::array<const char*, 4> kUnits{"", " k", " M", " B"};
  auto value = static_cast<double>(number);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < kUnits.size()) value /= 1000, ++unit;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f%s" : "%.2f%s", value, kUnits[unit]);
  return text.data();
}

bool stdout_has_colours() {
  return isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
}

}  // namespace troupe::app
