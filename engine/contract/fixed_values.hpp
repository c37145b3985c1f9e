// What of a stage does not train, with the values that it had before anything ran.
//
// Refers to the stage's parameters; asks the stage once, and lets through what that throws.

#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/contract/stage_bench.hpp"
#include "engine/execution/stage_program.hpp"
#include "models/layer.hpp"

namespace troupe::engine {

class FixedValues {
 public:
  FixedValues() = default;  ///< Of nothing.
  /// Cost: a copy of them.
  FixedValues(const StageBench& bench, StageProgram& stage);

  bool empty() const { return values_.empty(); }

  /// What one of them has that it must not have, and where to look, of each such. REQUIRES: the
  /// stage is there.
  std::vector<std::pair<std::string, std::string>> faults() const;

 private:
  std::vector<std::pair<const models::Parameter*, at::Tensor>> values_;
};

}  // namespace troupe::engine
