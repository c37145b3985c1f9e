// Where a record stands that is numbered across all sources.
//
// Pure.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::data {

struct RecordPlace {
  std::size_t source = 0;   ///< As many as there are counts: it is behind all of them.
  std::int64_t number = 0;  ///< Within its source.
};

/// Place of a record whose number runs on from source to source. `counts`: records of each.
/// Cost: linear in sources.
inline RecordPlace place_of(std::int64_t record, std::span<const std::int64_t> counts) {
  RecordPlace place{0, record};
  while (place.source < counts.size() && place.number >= counts[place.source])
    place.number -= counts[place.source++];
  return place;
}

}  // namespace troupe::data
