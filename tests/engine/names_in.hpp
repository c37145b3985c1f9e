// What units of a plan are, whatever numbers they have in it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"

namespace troupe::engine {

/// The id of each sample, and behind it of a piece the encoder, its first item and how many. "none"
/// of what the plan does not have.
inline std::vector<std::string> names_in(const IterationPlan& iteration,
                                         const std::vector<std::int32_t>& units) {
  const std::size_t whole = iteration.samples.size();
  std::vector<std::string> names;
  for (const std::int32_t unit : units) {
    const auto index = static_cast<std::size_t>(unit);
    if (index >= whole + iteration.pieces.size()) {
      names.emplace_back("none");
      continue;
    }
    std::string name = iteration.sample(unit).id;
    if (index >= whole) {
      const SamplePiece& piece = iteration.pieces[index - whole];
      name += " " + std::to_string(piece.module.index()) + " " + std::to_string(piece.first) + " " +
              std::to_string(piece.count);
    }
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace troupe::engine
