#include "scheduler/iteration/row_routes.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>

namespace troupe::scheduler {

namespace {

/// Adds the sizes of `parts` even cuts of `rows`.
void cut_evenly(TokenCount rows, std::size_t parts, std::vector<TokenCount>& sizes) {
  const auto count = static_cast<TokenCount>(parts);
  for (TokenCount p = 0; p < count; ++p) sizes.push_back(rows / count + (p < rows % count ? 1 : 0));
}

/// Rows of each destination.
std::vector<TokenCount> rows_per_destination(const std::vector<TokenCount>& sources,
                                             std::size_t destinations) {
  std::vector<TokenCount> sizes;
  if (sources.size() % destinations == 0) {
    const std::size_t share = sources.size() / destinations;
    for (std::size_t d = 0; d < destinations; ++d) {
      const auto first = sources.begin() + static_cast<std::ptrdiff_t>(d * share);
      sizes.push_back(
          std::accumulate(first, first + static_cast<std::ptrdiff_t>(share), TokenCount{0}));
    }
  } else if (destinations % sources.size() == 0) {
    for (const auto rows : sources) cut_evenly(rows, destinations / sources.size(), sizes);
  } else {
    cut_evenly(std::accumulate(sources.begin(), sources.end(), TokenCount{0}), destinations, sizes);
  }
  return sizes;
}

}  // namespace

Result<std::vector<RowRoute>> route_rows(const std::vector<TokenCount>& rows_per_source,
                                         std::int32_t destinations) {
  if (rows_per_source.empty())
    return Error{Errc::invalid_argument, "there is no source", "rows_per_source", {}};
  if (destinations < 1)
    return Error{Errc::invalid_argument,
                 "expected at least 1, found " + std::to_string(destinations),
                 "destinations",
                 {}};
  for (std::size_t s = 0; s < rows_per_source.size(); ++s)
    if (rows_per_source[s] < 0)
      return Error{Errc::invalid_argument,
                   "expected at least 0 rows, found " + std::to_string(rows_per_source[s]),
                   "rows_per_source[" + std::to_string(s) + "]",
                   {}};
  const auto sizes = rows_per_destination(rows_per_source, static_cast<std::size_t>(destinations));
  std::vector<RowRoute> routes;
  TokenCount source_begin = 0, destination_begin = 0;
  for (std::size_t s = 0, d = 0; s < rows_per_source.size() && d < sizes.size();) {
    const TokenCount rows =
        std::min(rows_per_source[s] - source_begin, sizes[d] - destination_begin);
    if (rows > 0)
      routes.push_back({static_cast<std::int32_t>(s), static_cast<std::int32_t>(d), source_begin,
                        destination_begin, rows});
    source_begin += rows;
    destination_begin += rows;
    if (source_begin == rows_per_source[s]) {
      ++s;
      source_begin = 0;
    }
    if (destination_begin == sizes[d]) {
      ++d;
      destination_begin = 0;
    }
  }
  return routes;
}

}  // namespace troupe::scheduler
