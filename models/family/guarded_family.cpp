#include "models/family/guarded_family.hpp"

#include <utility>

#include "runtime/plugins/user_calls.hpp"
#include "runtime/vocabulary/user_code.hpp"

namespace troupe::models {

namespace {

/// Wraps a member that is called so: "`sizes` of family 'mine'".
template <class Answer, class... Arguments>
void guard(std::function<Answer(Arguments...)>& member, const char* name,
           const std::string& family) {
  if (!member) return;
  member = [ask = std::move(member), function = "`" + std::string(name) + "` of family '" + family +
                                                "'"](Arguments... arguments) -> Answer {
    const plugins::CallingUser call(function);
    try {
      return ask(std::forward<Arguments>(arguments)...);
    } catch (const UserFault&) {  // Of the family that this one is built on.
      throw;
    } catch (const std::exception& fault) {
      throw UserFault(function, std::string("throws: ") + fault.what());
    } catch (...) {
      throw UserFault(function, "throws no std::exception");
    }
  };
}

}  // namespace

Family guarded(Family family) {
  guard(family.fields, "fields", family.name);
  guard(family.sizes, "sizes", family.name);
  guard(family.problems, "problems", family.name);
  guard(family.describe, "describe", family.name);
  guard(family.works, "works", family.name);
  guard(family.media, "media", family.name);
  return family;
}

}  // namespace troupe::models
