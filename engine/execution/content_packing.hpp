// Decoded content of samples as the bytes of a delivery, and back: for nodes that do not see the
// samples' source of data.
//
// Pictures are the 8-bit pixels of their patches, sounds the values that an encoder reads, item
// after item (`media_form`); text is a number per token, which also says whether it is trained.
// What comes out has the bits of what a node has that decodes the sample. Sizes follow from the
// plan alone. Stateless.

#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "engine/execution/sample_store.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/media_input.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_pieces.hpp"

namespace troupe::engine {

/// What a delivery carries: uint8 [delivery.bytes], in host memory. `scales`: of the vision
/// encoders, by which they normalise pixels; of those beyond it CLIP's.
///
/// Errors:
/// - internal: this node did not decode a sample of it, its sizes are not the planned ones, or the
///   values of a picture were not made of pixels.
Result<at::Tensor> pack_content(const Delivery& delivery, const SampleUnits& units,
                                const SampleStore& store, std::span<const PixelScale> scales = {});

/// Adds what a delivery has brought to the samples of this node. `packed`: as `pack_content` made
/// it elsewhere; `scales`: as there.
///
/// Errors:
/// - internal: it has not as many bytes as its samples; nothing is added.
/// REQUIRES: in host memory.
Status unpack_content(const Delivery& delivery, const SampleUnits& units, const at::Tensor& packed,
                      SampleStore& store, std::span<const PixelScale> scales = {});

}  // namespace troupe::engine
