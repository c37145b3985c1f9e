// What tests and evaluation need from a Llama decoder beyond `Layer`.

#pragma once

#include <ATen/core/Tensor.h>

#include "models/layer.hpp"

namespace troupe::models {

/// Logits of every row, [rows, vocabulary]. REQUIRES: `head` is the last layer of a llama module.
at::Tensor head_logits(Layer& head, const at::Tensor& rows);

}  // namespace troupe::models
