#include "app/text_table.hpp"

#include <algorithm>
#include <iostream>
#include <utility>

#include "runtime/observe/console.hpp"

namespace troupe::app {

namespace {

using Rows = std::vector<std::vector<std::string>>;

std::vector<std::size_t> widths_of(const Rows& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  return widths;
}

/// A list in lines of `width` where its parts are no longer: `a, b,` and `c`.
std::vector<std::string> broken(const std::string& list, std::size_t width) {
  std::vector<std::string> lines{""};
  for (std::size_t begin = 0; begin < list.size();) {
    const auto comma = list.find(", ", begin);
    const auto end = comma == std::string::npos ? list.size() : comma + 1;
    const auto part = list.substr(begin, end - begin);
    if (!lines.back().empty() && lines.back().size() + 1 + part.size() > width)
      lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + part;
    begin = comma == std::string::npos ? end : end + 1;
  }
  return lines;
}

/// Breaks the cells of a column so that rows have `columns` at most, if they can.
void fit(Rows& rows, std::size_t column, std::size_t columns) {
  constexpr std::size_t kNarrowest = 12;
  const auto widths = widths_of(rows);
  std::size_t whole = 0;
  for (const auto width : widths) whole += width + 2;
  if (whole <= columns) return;
  const std::size_t others = whole - widths[column];
  const std::size_t room = std::max(kNarrowest, columns > others ? columns - others : 0);
  Rows fitted;
  for (auto& row : rows) {
    const auto lines = broken(row[column], room);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      auto next = i == 0 ? row : std::vector<std::string>(row.size());
      next[column] = lines[i];
      fitted.push_back(std::move(next));
    }
  }
  rows = std::move(fitted);
}

}  // namespace

std::string padded(std::string text, std::size_t width, bool right) {
  if (text.size() >= width) return text;
  const std::string blanks(width - text.size(), ' ');
  return right ? blanks + text : text + blanks;
}

std::size_t terminal_width() {
  return static_cast<std::size_t>(
      std::max(40, observe::Console(observe::detect_console(1)).width()));
}

void print_table(Rows rows, const std::set<std::size_t>& left,
                 std::optional<std::size_t> flexible) {
  if (flexible) fit(rows, *flexible, terminal_width());
  const auto widths = widths_of(rows);
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c)
      line += "  " + padded(row[c], widths[c], !left.contains(c));
    line.erase(line.find_last_not_of(' ') + 1);
    std::cout << line << '\n';
  }
}

}  // namespace troupe::app
