// Whether replicas of an encoder have room for what they keep at once: one rule for phases that
// stay as they were cut and for those that are spread.
//
// Pure and deterministic. Helper of microbatching and phase_exchange.

#pragma once

#include <compare>
#include <cstddef>
#include <span>
#include <vector>

#include "engine/iteration/phase_exchange.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"

namespace troupe::engine {

/// What a unit is encoded for.
struct EncodedFor {
  std::size_t llm = 0;         ///< A replica of the llm, as an index into the cuts.
  std::size_t microbatch = 0;  ///< Of that replica.
  std::size_t round = 0;       ///< Of encoders, in which the unit is.

  friend auto operator<=>(const EncodedFor&, const EncodedFor&) = default;
};

/// Per unit of `work`; of a piece what its sample is encoded for. Cost: O(units).
std::vector<EncodedFor> encoded_for(std::span<const LlmCut> cuts, const PhaseWork& work);

/// Whether each replica of a group has room for what it keeps at once. `lists`: one for each of
/// them; `targets`: per unit (`encoded_for`).
///
/// A microbatch is kept until all that it feeds of the llm has been through. So those of a round
/// which feed the same microbatch of the llm are kept together, with those between them, and so on
/// where one of these feeds another one too. Others need not be: an encoder that is short of room
/// runs one behind the other. Of phases as they were cut each microbatch feeds one replica of the
/// llm. Spread over fewer encoders than there are llms, a share of a round is several microbatches,
/// between which what one llm wants is often divided. Of what is offloaded one of them at a time
/// has some on the device (`PhaseWork::staying_shares`).
///
/// `in_windows`: in a schedule with phases, whose windows are the same places in the lists of all
/// replicas (`scheduler::WindowCuts`), so that it counts where others have something of the same
/// microbatch of the llm. Elsewhere three or more that hang together are asked to fit, although a
/// schedule may do with less of them at once. What samples that are deferred to a later round keep
/// besides is not counted: `scheduler::memory_bounds` has the last word on a plan.
///
/// Cost: O(units x log(units)). REQUIRES: `PhaseWork::room_shares`; microbatches of one round each.
bool have_room(std::span<const MicrobatchList> lists, std::span<const EncodedFor> targets,
               const PhaseWork& work, bool in_windows);

}  // namespace troupe::engine
