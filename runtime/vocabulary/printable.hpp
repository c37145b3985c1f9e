// Text from outside as a terminal may show it.

#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// `text` with every character written out (`\x1b`, `\u202e`) that would act on a terminal instead
/// of standing there: control characters but for the new line and the tab, and marks that turn the
/// direction of writing (Unicode's bidirectional formatting). What is no UTF-8 stays.
std::string printable(std::string_view text);

}  // namespace troupe
