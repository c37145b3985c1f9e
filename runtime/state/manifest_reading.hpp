// Reading fields of a manifest's JSON. For the sources that parse a manifest alone: they throw
// `BadManifest`, or what the JSON library throws, and `parse_manifest` makes an Error of it.

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace troupe::state {

using Json = nlohmann::json;

struct BadManifest : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A whole number, `min` at least, that fits into 63 bits.
std::int64_t number(const Json& json, const char* key, std::int64_t min = 0);

/// The same of a value itself; `what` is how an error calls it.
std::int64_t number_in(const Json& value, const char* what, std::int64_t min = 0);

std::string text(const Json& json, const char* key);

const Json& list(const Json& json, const char* key);

}  // namespace troupe::state
