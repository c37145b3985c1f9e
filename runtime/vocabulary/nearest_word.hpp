// Finds what a user probably meant, for "did you mean" in every error about a name.

#pragma once

#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// The known word with the least edit distance (Levenshtein) to `word`, if that distance is at most
/// a third of the longer length, rounded up; otherwise empty. Ties go to the earlier word.
/// Cost: O(known * length^2).
std::string nearest_word(std::string_view word, std::span<const std::string> known);

/// What to do about an unknown name, for `Error::fix`: "did you mean `x`?", or "use one of a, b, c"
/// where none is near (the first twenty of many); empty when nothing is known.
std::string name_fix(std::string_view word, std::span<const std::string> known);

}  // namespace troupe
