#include "runtime/vocabulary/nearest_word.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace troupe {

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_word(std::string_view word, std::span<const std::string> known) {
  std::string best;
  std::size_t best_distance = 0;
  for (const auto& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    const std::size_t allowed = (std::max(word.size(), candidate.size()) + 2) / 3;
    if (distance > allowed) continue;
    if (best.empty() || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string name_fix(std::string_view word, std::span<const std::string> known) {
  if (known.empty()) return {};
  if (const auto near = nearest_word(word, known); !near.empty())
    return "did you mean `" + near + "`?";
  constexpr std::size_t kListedMax = 20;
  std::string listed;
  for (const auto& name : known.first(std::min(kListedMax, known.size())))
    listed += (listed.empty() ? "" : ", ") + name;
  return "use one of " + listed + (known.size() > kListedMax ? ", ..." : "");
}

}  // namespace troupe
