// In a node process: shows listeners elsewhere what its devices compute, as fast as they take it.

#pragma once

#include <map>
#include <memory>
#include <optional>

#include "actors/link/observing.hpp"
#include "runtime/observers/listeners.hpp"

namespace troupe::actors {

struct PresenterState {
  /// How far one listener is shown what waits for it.
  struct Progress {
    std::uint64_t untaken = 0;
    std::shared_ptr<const observers::Observed> part;  ///< Being sent; null: none.
    std::size_t begin = 0;                            ///< Of its next piece.
  };

  observers::Listeners* listeners = nullptr;
  caf::strong_actor_ptr hub;  ///< Null: no head is known.
  std::int32_t node = -1;
  std::map<observers::Listeners::Id, Progress> progress;
  caf::typed_response_promise<over_atom> all_taken;  ///< Waits until nothing waits.

  static inline const char* name = "presenter";
};

/// `listeners` outlives the actor, which is told of what waits there.
PresenterActor::behavior_type presenter(PresenterActor::stateful_pointer<PresenterState> self,
                                        observers::Listeners* listeners);

}  // namespace troupe::actors
