// Gradients of a stage against the slopes of what its own forward computes.
//
// Single owner; calls code of the user's, whose exceptions are errors here.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/contract/stage_bench.hpp"

namespace troupe::engine {

/// A gradient that is no slope.
struct WrongGradient {
  std::string of;       ///< A parameter's name, or `the rows that came`.
  double gradient = 0;  ///< Along the direction that was tried.
  double slope = 0;     ///< Of those that were measured, the nearest to it.
};

struct SlopeOptions {
  std::uint64_t seed = 1;   ///< Of the directions.
  double tolerance = 1e-6;  ///< Of the gradient's norm.
  /// Called before each parameter: all of them may take long.
  std::function<void()> on_begin = {};
};

/// At most this many are looked for.
inline constexpr std::size_t kWrongGradients = 5;

/// The gradients that `whole`, a round on `inputs`, gave: of all rows together and of each
/// parameter by itself, along one random direction each, against differences of fourth order of the
/// losses and of the rows that go out, weighed by their gradients. Steps are a thousandth of the
/// values' size, then smaller: a layer that chooses (a maximum, experts) jumps where a step crosses
/// a choice. Where one of them agrees, up to the tolerance and to what rounding leaves, the
/// gradient is right. Values of parameters are as before in the end.
///
/// Errors: as `run_round`. Cost: four forwards for each step.
Result<std::vector<WrongGradient>> wrong_gradients(const StageBench& bench, StageProgram& stage,
                                                   StageId id, const StageRows& inputs,
                                                   const StageOutcome& whole,
                                                   const SlopeOptions& options);

}  // namespace troupe::engine
