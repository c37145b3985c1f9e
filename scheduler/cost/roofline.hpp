// Computes the profile of a device that is not here from its documented peak numbers.
//
// A roofline: a layer takes the longer of its arithmetic at a share of the peak rate and its
// traffic at a share of the peak bandwidth, plus a fixed time for launching its kernels. The shares
// are assumptions, stated in `RooflineOptions`; every profile made here is labelled `computed`.
// What such a device was measured to take corrects them where it is known (measured_ratios.hpp).
// Pure; thread-safe.

#pragma once

#include <optional>
#include <string>
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
///
/// `measured`: profiles of layers of the same shapes on one such device. A kind that is among them
/// has its times scaled by the ratios of measured over computed at its measured sizes; a head in
/// chunks by those of a head in chunks. Others are computed alone, to the bit as without it. Only
/// what is `measured` at tp 1, cp 1 counts: shards hold collectives of the machine that measured.
std::vector<LayerProfile> computed_profiles(const std::vector<LayerWork>& works,
                                            const DeviceSpec& device,
                                            const std::vector<Parallelism>& parallelisms,
                                            const RooflineOptions& options = {},
                                            const std::vector<LayerProfile>& measured = {});

/// What measurement changed of a kind.
struct KindCorrection {
  std::string kind;
  /// Times of all computed sizes on one device together, corrected over computed; none: it is
  /// computed alone.
  std::optional<double> factor;
};

/// One entry for each kind at tp 1, cp 1, in order. REQUIRES: both lists are of the same works,
/// device, degrees and options.
std::vector<KindCorrection> kind_corrections(const std::vector<LayerProfile>& computed,
                                             const std::vector<LayerProfile>& corrected);

}  // namespace troupe::scheduler
