// The families that come with the product, one row each. Private to models/family.

#pragma once

#include <vector>

#include "models/family/family.hpp"

namespace troupe::models {

std::vector<Family> built_in_families();

}  // namespace troupe::models
