// A bad sample as a JSON object, for lines and summaries. Private to runtime/data.

#pragma once

#include <nlohmann/json.hpp>

#include "runtime/data/samples/bad_sample.hpp"

namespace troupe::data {

/// Keys id, kind, file, where, reason, fix.
nlohmann::ordered_json to_json(const BadSample& bad);

}  // namespace troupe::data
