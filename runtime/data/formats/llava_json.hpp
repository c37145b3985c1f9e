// LLaVA's JSON: splits a file into its records and reads one record.
//
// Pure.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/formats/record.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

/// Reads all records of a file's text: a JSON array of objects, or one object per line.
///
/// Record ids that are missing become `FILE#PLACE`, PLACE counting from 0. `where` is `FILE:LINE`.
/// Fields and rules: see Dataset::open. Cost: O(bytes).
///
/// Errors:
/// - bad_data: not JSON (`where` is FILE:LINE:COLUMN), neither an array nor objects, or no record.
Result<std::vector<Record>> read_llava_json(std::string_view text, const std::string& file);

}  // namespace troupe::data
