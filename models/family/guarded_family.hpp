// Families of the user's: what one of their functions throws is told by its name, and one that does
// not return can be named. Built-in families need neither.
//
// Does not hold: `make`, whose caller knows the layer (models/factory.cpp).

#pragma once

#include "models/family/family.hpp"

namespace troupe::models {

/// The same family. Whoever is in one of its functions is in a `plugins::CallingUser`; whatever
/// leaves one is a `UserFault` that names function and family. Members that are not set stay so.
Family guarded(Family family);

}  // namespace troupe::models
