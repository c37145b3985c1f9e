// How many ids the embedded tokenizer has: what data give and all that reads text must know.

#pragma once

#include <cstdint>

namespace troupe {

/// Least `vocab_size` of what reads text; 5 x 64, so that matrix products run at full speed.
inline constexpr std::int32_t kTokenizerSize = 320;

}  // namespace troupe
