// Computes the profile of a device that is not here from its documented peak numbers.
//
// A roofline: a layer takes the longer of its arithmetic at a share of the peak rate and its
// traffic at a share of the peak bandwidth, plus a fixed time for launching its kernels. The shares
// are assumptions, stated in `RooflineOptions`; every profile made here is labelled `computed`.
// Pure; thread-safe.

#pragma once

#include <vector>

#include "runtime/vocabulary/model_config.hpp"
#include "scheduler/cost/device_catalog.hpp"
#include "scheduler/cost/layer_work.hpp"
#include "scheduler/cost/profile.hpp"

namespace troupe::scheduler {

struct RooflineOptions {
  Dtype dtype = Dtype::bf16;
  double compute_share = 0.6;    ///< Of the peak rate that large matrix products attain.
  double bandwidth_share = 0.8;  ///< Of the peak bandwidth that streaming attains.
  double link_share = 0.7;       ///< Of the link's rate that collectives attain.
  double launch_ms = 0.05;       ///< Per layer and pass: about ten kernels.
};

/// Profiles of these kinds at token counts 64 .. 16384 and every (tp, cp) given whose tp divides
/// the kind's heads. A tensor-parallel layer divides weights and attention by tp and adds two ring
/// all-reduces of its rows each way; a context-parallel one divides tokens by cp and adds the
/// exchange of keys and values. A head whose logits are cut into chunks reads its weights once for
/// each, computes the input gradient in the forward and its logits again before the weight
/// gradient.
std::vector<LayerProfile> computed_profiles(const std::vector<LayerWork>& works,
                                            const DeviceSpec& device,
                                            const std::vector<Parallelism>& parallelisms,
                                            const RooflineOptions& options = {});

}  // namespace troupe::scheduler
