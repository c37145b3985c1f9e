// The stages of a device, made as a layout comes up: by code of the user's, which may fail or never
// return.

#pragma once

#include <map>
#include <memory>

#include "engine/execution/stage_kinds.hpp"
#include "engine/execution/stage_program.hpp"
#include "engine/execution/work_in_hand.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

/// Makes all stages that the plan of `request` has on this device, in their order; which stage
/// `request` names means nothing. Meanwhile `in_hand` says which one is being made, as work of step
/// 0 of this layout; afterwards it is nobody's. REQUIRES: nothing is in hand.
///
/// Errors: as `make_stage`, the first one, with layout, device and stage.
Result<std::map<StageId, std::unique_ptr<StageProgram>>> make_stages(StageRequest request,
                                                                     DeviceId device,
                                                                     EpochNumber epoch_number,
                                                                     WorkInHand& in_hand);

}  // namespace troupe::engine
