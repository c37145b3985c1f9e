#include "models/family/size_problems.hpp"

#include "runtime/vocabulary/tokenizer_size.hpp"

namespace troupe::models {

namespace {

/// The divisor of `number` next to `wanted`, the larger of two equally near. Cost: O(number).
std::int64_t nearest_divisor(std::int64_t number, std::int64_t wanted) {
  for (std::int64_t distance = 0; distance < number; ++distance) {
    if (wanted + distance <= number && number % (wanted + distance) == 0) return wanted + distance;
    if (wanted > distance && number % (wanted - distance) == 0) return wanted - distance;
  }
  return 1;
}

}  // namespace

std::optional<ConfigProblem> not_divided(const char* count_key, std::int64_t count,
                                         const char* width_key, std::int64_t width) {
  if (width % count == 0) return {};
  return ConfigProblem{
      count_key,
      std::to_string(count) + " does not divide " + width_key + " " + std::to_string(width),
      std::string("try ") + count_key + " = " + std::to_string(nearest_divisor(width, count))};
}

std::optional<ConfigProblem> too_few_tokens(const ModuleConfig& module, const ModuleSizes& sizes) {
  if (!reads_text(module.kind) || sizes.vocabulary >= kTokenizerSize) return {};
  const std::string least = std::to_string(kTokenizerSize);
  return ConfigProblem{"vocab_size",
                       std::to_string(sizes.vocabulary) + " is less than the tokenizer's " + least,
                       "write vocab_size = " + least + " or leave it out", true};
}

}  // namespace troupe::models
