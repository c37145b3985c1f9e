// Whether what is shown of a part is what `Observed` promises: an observer that goes by `rows` and
// `width` must not read past the values. For stages of this process, and for what comes from
// others.
//
// Pure.

#pragma once

#include "runtime/observers/observer.hpp"

namespace troupe::observers {

/// Whether each sample has an id, a number of rows and a first row, and the values are those of
/// all rows: [sum of rows, width].
bool is_whole(const Observed& part);

}  // namespace troupe::observers
