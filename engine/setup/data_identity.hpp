// Whether two processes see the same data. Every node reads the data itself, and the parts of a
// sample that different nodes decode meet by its position alone.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/samples/dataset.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// A media file and its size where a process keeps it.
struct MediaSize {
  std::string name;         ///< As the JSON files say.
  std::int64_t bytes = -1;  ///< -1: it is not there, as on a node that reads no media.

  friend bool operator==(const MediaSize&, const MediaSize&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, MediaSize& x) {
    return f(x.name, x.bytes);
  }
};

/// Media files whose sizes are compared, at most.
inline constexpr std::size_t kComparedMedia = 256;

/// Of the JSON files of a data set and some of the media they name, not of where they lie.
struct DataIdentity {
  std::int64_t records = 0;
  std::uint64_t hash = 0;  ///< Of ids, turns, and names of media, in order.
  /// Of the records that the first shuffled epoch begins with, in that order.
  std::vector<MediaSize> media = {};
  std::vector<std::int64_t> sources = {};  ///< Records of each; none: not known.
  /// Of each source, as `hash`; none: not known. 0: it is not there, on a node that does not see
  /// it: what such a node has is compared source by source, without sizes of media.
  std::vector<std::uint64_t> hashes = {};

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, DataIdentity& x) {
    return f(x.records, x.hash, x.media, x.sources, x.hashes);
  }
};

/// The same on every machine of one byte order. `seed`: chooses the media; the job's. Cost: linear
/// in the text; looks at the sizes of `kComparedMedia` files and opens none.
DataIdentity identify(const data::Dataset& dataset, std::uint64_t seed);

/// The hash of the first records alone, so many of each source; of one number: of all sources.
/// REQUIRES: the data set has as many.
std::uint64_t hash_of_first(const data::Dataset& dataset, std::span<const std::int64_t> records);

/// Errors: bad_data: `there` is not `here`, or in a source that `there` sees; says whether the
/// number, the content, or the size of a media file differs that both have. `who`: a node, as the
/// message calls it.
Status same_data(const DataIdentity& here, const DataIdentity& there, const std::string& who);

/// Fills in the sizes that `here` lacks, so that nodes are compared with each other where the head
/// has no media. REQUIRES: `same_data(here, there)`.
void learn_sizes(DataIdentity& here, const DataIdentity& there);

}  // namespace troupe::engine
