// What layers throw where no executor runs them: in profiles and references. Layers may be a
// user's, whose exceptions are no defects of ours.

#pragma once

#include <string>

#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// In the handler of calls of layers: the exception that is being handled as an error of `where`, a
/// kind of layer or a sample. A `UserFault`, which names its function by itself, goes on.
///
/// Returns unavailable: no memory; internal: all else, in its own words.
Error layer_fault(std::string where);

}  // namespace troupe::engine
