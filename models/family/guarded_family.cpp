#include "models/family/guarded_family.hpp"

#include <utility>

#include "runtime/plugins/user_calls.hpp"

namespace troupe::models {

namespace {

/// Wraps a member that is called so: "`sizes` of family 'mine'".
template <class Answer, class... Arguments>
void guard(std::function<Answer(Arguments...)>& member, const char* name,
           const std::string& family) {
  if (!member) return;
  member = [ask = std::move(member), function = "`" + std::string(name) + "` of family '" + family +
                                                "'"](Arguments... arguments) -> Answer {
    // What it throws may be the fault of the family that it is built on, and stays that one's.
    return plugins::call_user(function, [&] { return ask(std::forward<Arguments>(arguments)...); });
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
  guard(family.update, "update", family.name);
  return family;
}

}  // namespace troupe::models
