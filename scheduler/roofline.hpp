// Computes the profile of a device that is not here from its documented peak numbers.
//
// A roofline: a layer takes the longer of its arithmetic at a share of the peak rate and its
// traffic at a share of the peak bandwidth, plus a fixed time for launching its kernels. The shares
// are assumptions, stated in `RooflineOptions`; every profile made here is labelled `computed`.
// Pure; thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/units.hpp"
#include "scheduler/device_catalog.hpp"
#include "scheduler/profile.hpp"

namespace troupe::scheduler {

/// What one kind of layer computes and moves, independent of any device.
struct LayerWork {
  std::string kind;
  double weights = 0;              ///< Elements of its matrices: 2 flops each per token.
  double used_weights = 0;         ///< Of them, those that each token multiplies with.
  double attention_flops = 0;      ///< Forward flops per squared sequence length.
  std::int64_t width = 0;          ///< Columns of its rows, for collectives.
  double activation_elements = 0;  ///< Kept per token until the backward.
};

struct RooflineOptions {
  Dtype dtype = Dtype::bf16;
  double compute_share = 0.6;    ///< Of the peak rate that large matrix products attain.
  double bandwidth_share = 0.8;  ///< Of the peak bandwidth that streaming attains.
  double link_share = 0.7;       ///< Of the link's rate that collectives attain.
  double launch_ms = 0.05;       ///< Per layer and pass: about ten kernels.
};

/// Work of every layer of a module, in order: embedding, blocks, head (see `VisionConfig` and so
/// on). `input_width` is the width of the rows that come in, for a projector.
std::vector<LayerWork> layer_works(const ModuleConfig& module, std::int64_t input_width = 0);

/// Profiles of these kinds at token counts 64 .. 16384 and every (tp, cp) given. A tensor-parallel
/// layer divides weights and attention by tp and adds two ring all-reduces of its rows each way; a
/// context-parallel one divides tokens by cp and adds the exchange of keys and values.
std::vector<LayerProfile> computed_profiles(const std::vector<LayerWork>& works,
                                            const DeviceSpec& device,
                                            const std::vector<Parallelism>& parallelisms,
                                            const RooflineOptions& options = {});

}  // namespace troupe::scheduler
