// An actor of one's own in the node processes of a job, which looks at what is computed there.
//
// It is the same actor that looks from outside, with the same messages (actors/link/observing.hpp):
// it asks a hub, is sent pieces and words on steps, and says what it took. Here the hub stands in
// its own process, what there is to see the job file says, and each node has an actor of its own:
//
//   [[observe.observers]]
//   name = "mine"
//
// It influences nothing: it has an actor system of its own and there a thread of its own, behind
// the queue of that table, which drops what does not fit and counts it. What it throws ends it, not
// the job. Two things differ from outside: `SeenStep` says nothing of what was dropped, which the
// job's log does, and `over_atom` has exit code -1, because a node does not know its job's.

#pragma once

#include <functional>
#include <string>

#include "actors/link/observing.hpp"
#include "runtime/observers/observer.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::actors {

/// An actor that jobs may ask for, under a name among those of observers.
struct ListenerKind {
  std::string name;  ///< As the job file says it: small letters, digits, `-` and `_`.
  /// What it does, as CAF's functions of typed actors; its thread calls it when it begins. It sends
  /// `hub` the `request`, by `listen_atom`, within ten seconds, and `took_atom` for each piece and
  /// word. `place`: where it works. Throws where it cannot be.
  std::function<ListenerActor::behavior_type(
      ListenerActor::pointer self, const ObservingHubActor& hub, const ListenRequest& request,
      const observers::Place& place)>
      make;
};

/// Adds an observer that is this actor, for the rest of the process. Call it before a job is read.
/// Thread-safe. Errors: as `observers::register_observer`.
Status register_listener(ListenerKind kind);

}  // namespace troupe::actors
