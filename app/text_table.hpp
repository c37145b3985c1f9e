// Tables of texts for a terminal.

#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe::app {

/// Cells in columns as wide as their widest; only columns of `left` are flush left. With `flexible`
/// its cells go over several lines, broken behind commas, where the terminal is too narrow.
void print_table(std::vector<std::vector<std::string>> rows, const std::set<std::size_t>& left,
                 std::optional<std::size_t> flexible = {});

/// Columns of the terminal, or of what stands for one; at least 40.
std::size_t terminal_width();

/// With spaces behind, or before where it stands at the `right`, until it is so wide.
std::string padded(std::string text, std::size_t width, bool right = false);

}  // namespace troupe::app
