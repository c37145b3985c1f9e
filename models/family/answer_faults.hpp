// What is wrong with the answers of a family, which may be a user's: found before anybody goes by
// them, so that a job is refused that would fail later, or be planned by nonsense.

#pragma once

#include <string>

#include "models/family/family.hpp"

namespace troupe::models {

/// What `description` and the other answers for one configuration say against each other, or what
/// nobody can make or count with; empty: all well. Throws what the family throws.
std::string answers_fault(const Family& family, const ModuleConfig& module, const Widths& widths,
                          const ModuleDescription& description);

/// What no encoder can make of its media; empty: all well, or it is no encoder. Throws likewise.
std::string media_fault(const Family& family, const FamilyConfig& config);

}  // namespace troupe::models
