#include "engine/contract/fixed_values.hpp"

#include <ATen/ops/equal.h>

namespace troupe::engine {

FixedValues::FixedValues(const StageBench& bench, StageProgram& stage) {
  for (const models::Parameter* parameter : stage.parameters())
    if (!bench.trains(parameter->name))
      values_.emplace_back(parameter, parameter->value.detach().clone());
}

std::vector<std::pair<std::string, std::string>> FixedValues::faults() const {
  std::vector<std::pair<std::string, std::string>> faults;
  for (const auto& [parameter, before] : values_) {
    if (parameter->value.requires_grad() || parameter->value.grad().defined())
      faults.emplace_back(parameter->name + " does not train, and wants a gradient",
                          "what calls `requires_grad_`: of values as they came, only some train");
    else if (!at::equal(before, parameter->value))
      faults.emplace_back(parameter->name + " does not train, and has changed",
                          "what writes to its values");
  }
  return faults;
}

}  // namespace troupe::engine
