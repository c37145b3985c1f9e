#include "runtime/state/manifest_reading.hpp"

#include <limits>

namespace troupe::state {

std::int64_t number_in(const Json& value, const char* what, std::int64_t min) {
  const bool fits = value.is_number_unsigned()
                        ? value.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max()
                        : value.is_number_integer();
  if (!fits || value.get<std::int64_t>() < min)
    throw BadManifest(std::string("'") + what + "' is no whole number from " + std::to_string(min) +
                      " on");
  return value.get<std::int64_t>();
}

std::int64_t number(const Json& json, const char* key, std::int64_t min) {
  return number_in(json.at(key), key, min);
}

std::string text(const Json& json, const char* key) { return json.at(key).get<std::string>(); }

const Json& list(const Json& json, const char* key) {
  const Json& value = json.at(key);
  if (!value.is_array()) throw BadManifest(std::string("'") + key + "' is no list");
  return value;
}

}  // namespace troupe::state
