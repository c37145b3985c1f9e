#include "runtime/vocabulary/family_config.hpp"

#include <stdexcept>
#include <string>

#include "runtime/vocabulary/demangled.hpp"

namespace troupe {

void FamilyConfig::refuse(const std::type_info& asked) const {
  const std::string wanted = demangled(asked.name());
  throw std::logic_error(
      "a configuration " +
      (held_ ? "of type " + demangled(held_->type().name()) : std::string("of no type")) +
      " is read as " + wanted + ": set `defaults` of its family to a " + wanted +
      ", as all functions of a family read the type of its `defaults`");
}

}  // namespace troupe
