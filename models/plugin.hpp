// What the author of a model family includes; `troupe::models::register_family` adds one, and
// TROUPE_PLUGIN (runtime/plugins/entry_point.hpp) makes it a plug-in.

#pragma once

#include "models/by_segment.hpp"
#include "models/encoder_family.hpp"
#include "models/family/block_work.hpp"
#include "models/family/family.hpp"
#include "models/family/registry.hpp"
#include "models/family/size_problems.hpp"
#include "models/layer.hpp"
#include "models/linear_layer.hpp"
#include "models/own_update.hpp"
#include "models/parameter_layer.hpp"
#include "runtime/plugins/entry_point.hpp"  // IWYU pragma: export
