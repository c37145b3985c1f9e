#include "scheduler/layout/encoder_placement.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace troupe::scheduler {

std::optional<EncoderPlacement> encoder_placement(const ParallelPlan& plan) {
  std::vector<bool> has_llm(plan.devices.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    if (plan.is_llm(StageId{s}))
      for (const DeviceId device : plan.stages[s].devices) has_llm[device.index()] = true;
  std::size_t encoders = 0, sharing = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (plan.is_llm(StageId{s})) continue;
    ++encoders;
    const bool shares = std::ranges::any_of(
        plan.stages[s].devices, [&](DeviceId device) { return has_llm[device.index()]; });
    sharing += shares ? 1 : 0;
  }
  if (encoders == 0) return std::nullopt;
  return sharing == 0          ? EncoderPlacement::apart
         : sharing == encoders ? EncoderPlacement::shared
                               : EncoderPlacement::partly;
}

std::string describe(EncoderPlacement placement) {
  switch (placement) {
    case EncoderPlacement::apart: return "encoders on devices of their own";
    case EncoderPlacement::partly: return "encoders partly on devices of the llm";
    case EncoderPlacement::shared: return "encoders on devices of the llm";
  }
  return "unknown";
}

std::string to_string(EncoderPlacement placement) {
  switch (placement) {
    case EncoderPlacement::apart: return "apart";
    case EncoderPlacement::partly: return "partly";
    case EncoderPlacement::shared: return "shared";
  }
  return "unknown";
}

}  // namespace troupe::scheduler
