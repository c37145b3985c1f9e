// A layer that is one linear map.

#pragma once

#include "kernels/linear.hpp"
#include "models/parameter_layer.hpp"

namespace troupe::models {

/// Rows times a weight [out, in], plus a bias [out]: its two parameters (`add_linear`). As the
/// first layer of an encoder it takes the values of the media (`PackedBatch::input`).
class LinearLayer : public ParameterLayer {
 public:
  using ParameterLayer::ParameterLayer;
  at::Tensor forward(const at::Tensor& rows, const PackedBatch& batch) override {
    const at::Tensor& from = rows.defined() ? rows : batch.input;
    return kernels::linear(from.to((*this)[0].options()), (*this)[0], (*this)[1]);
  }
};

}  // namespace troupe::models
