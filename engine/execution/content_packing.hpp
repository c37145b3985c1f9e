// Decoded content of samples as the bytes of a delivery, and back: for nodes that do not see the
// samples' source of data.
//
// Media are the values that an encoder reads, item after item; text is a number per token, which
// also says whether it is trained. Sizes follow from the plan alone. Stateless.

#pragma once

#include <ATen/core/Tensor.h>

#include "engine/execution/sample_store.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_pieces.hpp"

namespace troupe::engine {

/// What a delivery carries: uint8 [delivery.bytes], in host memory.
///
/// Errors:
/// - internal: this node did not decode a sample of it, or its sizes are not the planned ones.
Result<at::Tensor> pack_content(const Delivery& delivery, const SampleUnits& units,
                                const SampleStore& store);

/// Adds what a delivery has brought to the samples of this node. `packed`: as `pack_content` made
/// it elsewhere. REQUIRES: of the delivery's size, in host memory.
void unpack_content(const Delivery& delivery, const SampleUnits& units, const at::Tensor& packed,
                    SampleStore& store);

}  // namespace troupe::engine
