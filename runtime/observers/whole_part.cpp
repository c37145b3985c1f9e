#include "runtime/observers/whole_part.hpp"

#include <algorithm>
#include <cstdint>

namespace troupe::observers {

bool is_whole(const Observed& part) {
  const std::uint64_t values = part.values.size();
  std::uint64_t rows = 0;
  for (const std::int64_t of_sample : part.rows) {
    if (of_sample < 0) return false;
    rows += static_cast<std::uint64_t>(of_sample);
    if (rows > values) return false;  // Here, as a sum of any numbers could begin again at 0.
  }
  if (part.ids.size() != part.rows.size() || part.ids.size() != part.first_rows.size())
    return false;
  if (std::ranges::any_of(part.first_rows, [](std::int64_t row) { return row < 0; })) return false;
  if (part.width <= 0) return false;
  const auto width = static_cast<std::uint64_t>(part.width);
  return values % width == 0 && values / width == rows;
}

}  // namespace troupe::observers
