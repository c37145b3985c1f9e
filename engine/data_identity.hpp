// Whether two processes see the same data. Every node reads the data itself, and the parts of a
// sample that different nodes decode meet by its position alone.

#pragma once

#include <cstdint>

#include "runtime/data/dataset.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// Of the JSON files of a data set, not of where they lie nor of the media they name.
struct DataIdentity {
  std::int64_t records = 0;
  std::uint64_t hash = 0;  ///< Of ids, turns, and names of media, in order.

  friend bool operator==(const DataIdentity&, const DataIdentity&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, DataIdentity& x) {
    return f(x.records, x.hash);
  }
};

/// The same on every machine of one byte order. Cost: linear in the text.
DataIdentity identify(const data::Dataset& dataset);

/// Errors: bad_data: `there` is not `here`; says whether the number or the content differs.
/// `who`: a node, as the message calls it.
Status same_data(const DataIdentity& here, const DataIdentity& there, const std::string& who);

}  // namespace troupe::engine
