// A layer whose tensors stand in a list; derived classes name the entries.

#pragma once

#include <utility>
#include <vector>

#include "models/layer.hpp"

namespace troupe::models {

/// A layer whose parameters are a list that never changes its length.
class ParameterLayer : public Layer {
 public:
  /// In the order of its description.
  explicit ParameterLayer(std::vector<Parameter> parameters) : parameters_(std::move(parameters)) {}
  std::vector<Parameter>& parameters() override { return parameters_; }

 protected:
  const at::Tensor& operator[](int index) const {
    return parameters_[static_cast<std::size_t>(index)].value;
  }

 private:
  std::vector<Parameter> parameters_;
};

}  // namespace troupe::models
