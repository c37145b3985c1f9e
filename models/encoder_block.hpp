// The transformer block that both encoder families are made of: normalise, attend, add; normalise,
// widen, activate, narrow, add.
//
// Internal to models/.

#pragma once

#include "kernels/linear.hpp"
#include "kernels/norms.hpp"
#include "models/parameter_layer.hpp"

namespace troupe::models {

/// A layer of this form: norm, attention, sum; norm, two linear layers, sum.
class EncoderBlock : public ParameterLayer {
 public:
  at::Tensor forward(const at::Tensor& rows, const PackedBatch& batch) final {
    const auto attended = rows.add(attend(normed(rows, at_.norm1), batch));
    const auto wide = linear(normed(attended, at_.norm2), at_.fc1);
    return attended.add(linear(activate(wide), at_.fc2));
  }

 protected:
  /// Places of weights in the list of parameters; each is followed by its bias.
  struct Places {
    int norm1, norm2, fc1, fc2;
  };

  /// `eps`: of both norms.
  EncoderBlock(std::vector<Parameter> parameters, Places at, double eps)
      : ParameterLayer(std::move(parameters)), at_(at), eps_(eps) {}

  /// Attention over normalised rows, its output projection included.
  virtual at::Tensor attend(const at::Tensor& rows, const PackedBatch& batch) const = 0;
  /// Between the two linear layers, value by value: [rows, width of fc1].
  virtual at::Tensor activate(const at::Tensor& wide) const = 0;

  /// rows times the weight at this place, plus its bias.
  at::Tensor linear(const at::Tensor& rows, int weight) const {
    return kernels::linear(rows, (*this)[weight], (*this)[weight + 1]);
  }

 private:
  at::Tensor normed(const at::Tensor& rows, int weight) const {
    return kernels::layer_norm(rows, (*this)[weight], (*this)[weight + 1], eps_);
  }

  Places at_;
  double eps_;
};

}  // namespace troupe::models
