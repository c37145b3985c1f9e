// A layer that keeps its input alone and runs forward again when its backward comes.
//
// Source: activation recomputation, layer by layer (Chen et al. 2016, "Training deep nets with
// sublinear memory cost", section 4). Holds no state between calls besides the layer's own.

#pragma once

#include <memory>

#include "models/layer.hpp"

namespace troupe::models {

/// The same layer, to the bit: values, gradients and what it adds to the loss. Between forward and
/// backward it holds its input rows ([rows, hidden]) and output; in the backward, for as long as
/// that takes, what one plain forward keeps. Where nothing in it trains and its input needs no
/// gradient it is the plain layer.
///
/// The layer reads of the batch what needs no gradient: not `BatchCache`'s owner, not `media`,
/// which only a first layer has. REQUIRES: a layer.
std::unique_ptr<Layer> recomputed(std::unique_ptr<Layer> layer);

}  // namespace troupe::models
