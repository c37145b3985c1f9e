// What a device gives of its stages beside the work of a step: the gradients of the first one, and
// the trained model.

#include <c10/util/Exception.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "engine/execution/executor.hpp"

namespace troupe::engine {

Status Executor::copy_gradients(std::map<std::string, at::Tensor>& target) {
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
    const ParameterUse& first = plan_.groups[g].uses.front();
    if (!is_here(first.stage)) continue;
    std::map<std::string, at::Tensor> copies;
    auto told = ask(first.stage, "copy_gradients", [&] {
      stage(first.stage).state(GroupId{g}, first.layer).copy_gradients(copies);
      for (const auto& [name, copy] : copies)
        TORCH_CHECK(copy.defined(), "there is no gradient of '", name, "'");
    });
    if (!told.ok()) return told;
    // A step that was given up may have left others.
    for (auto& [name, copy] : copies) target.insert_or_assign(name, std::move(copy));
  }
  return Done{};
}

/// Where a stage stands for others that are equal, the first one's are taken.
Result<std::map<std::string, at::Tensor>> Executor::parameters() {
  std::map<std::string, at::Tensor> values;
  for (const auto& [id, program] : stages_) {
    if (!plan_.is_first(plan_.at(id).replica)) continue;
    auto told = ask(id, "parameters", [&values, &own = *program] {
      for (const models::Parameter* parameter : own.parameters())
        if (!parameter->tied_use) values[parameter->name] = parameter->value.detach();
    });
    if (!told.ok()) return std::move(told).error();
  }
  return values;
}

}  // namespace troupe::engine
