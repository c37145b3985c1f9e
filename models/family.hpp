// What a model family provides. To add one: a source file with these two functions and one row in
// the table of families (family.cpp).
//
// Internal to models/.

#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "models/description.hpp"
#include "models/layer.hpp"

namespace troupe::models {

struct Family {
  std::string_view name;  ///< As in the job file: `modules.NAME.family`.
  ModuleKind kind;
  std::size_t config_index;  ///< Alternative of `ModuleConfig::config`.
  /// Checks sizes and lists layers. The family and config alternative are right.
  Result<ModuleDescription> (*describe)(const ModuleConfig& module,
                                        const std::vector<ModuleConfig>& all);
  /// Makes layer `index` from its parameters, in the order of the description.
  std::unique_ptr<Layer> (*make)(const ModuleConfig& module, int index,
                                 std::vector<Parameter> parameters);
};

extern const Family kQwen2Vl;
extern const Family kWhisper;
extern const Family kMlp;
extern const Family kLlama;

/// The module's family, after checking that kind and configuration belong to it.
/// Errors: invalid_argument.
Result<const Family*> find_family(const ModuleConfig& module);

/// A layer whose tensors stand in a list; derived classes name the entries.
class ParameterLayer : public Layer {
 public:
  explicit ParameterLayer(std::vector<Parameter> parameters) : parameters_(std::move(parameters)) {}
  std::vector<Parameter>& parameters() override { return parameters_; }

 protected:
  const at::Tensor& operator[](int index) const {
    return parameters_[static_cast<std::size_t>(index)].value;
  }

 private:
  std::vector<Parameter> parameters_;
};

/// An `Error` about a module's configuration.
Error config_error(const ModuleConfig& module, std::string field, std::string message,
                   std::string fix);

}  // namespace troupe::models
