// For who writes a listener as an actor of his own (actors/link/observing.hpp): how it comes to a
// job. `troupe::watch` (app/watch.hpp) does it for everybody else.

#pragma once

#include <caf/actor_system_config.hpp>
#include <memory>
#include <string>

#include "actors/link/observing.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe {

/// Settings of an actor system that speaks with jobs. Its threads write to connections: block
/// SIGPIPE before it is made, or ignore it.
std::unique_ptr<caf::actor_system_config> observing_settings();

/// The hub of a running job; send it `listen_atom`. `system` has the settings above. `job`: its run
/// folder, or where it listens (`HOST:PORT`); then `key_file` is its key, or none where it is a job
/// of this user on this machine or TROUPE_KEY says it. Blocks for `patience_s` at most, and ten
/// seconds more where the job is there and does not answer.
///
/// Errors:
/// - not_found: no job runs there.
/// - invalid_argument: another key, or none for a job that has one.
/// - unavailable: another build of troupe, or the job just ends.
/// - timed_out: nobody answers there.
Result<actors::ObservingHubActor> find_observing_hub(caf::actor_system& system,
                                                     const std::string& job,
                                                     const std::string& key_file = {},
                                                     double patience_s = 10);

}  // namespace troupe
