#include "actors/node/keeper_actor.hpp"

#include <utility>

#include "actors/link/exceptions.hpp"
#include "runtime/state/checkpoint_keeping.hpp"

namespace troupe::actors {

namespace {

using Self = KeeperActor::stateful_pointer<KeeperState>;

void complete(Self self, const WrittenCheckpoint& written) {
  KeptCheckpoint kept;
  kept.number = written.number;
  kept.status = state::complete_checkpoint(written.partial, written.folder, written.manifest,
                                           written.resolved_job);
  if (!kept.status.ok())
    state::discard_checkpoint(written.partial);
  else if (!written.leaves_older)
    kept.left_behind =
        state::remove_older_checkpoints(written.folder.parent_path(), self->state.keep_last);
  self->send(self->state.supervisor, std::make_shared<const KeptCheckpoint>(std::move(kept)));
}

}  // namespace

KeeperActor::behavior_type keeper(Self self, std::int32_t keep_last, SupervisorActor supervisor) {
  self->state.keep_last = keep_last;
  self->state.supervisor = supervisor;
  tell_of_exceptions(self, "the keeper of checkpoints", [self](const Error& error) {
    self->send(self->state.supervisor, failed_atom::value, error);
  });
  return {
      [self](const WrittenCheckpointPtr& written) { complete(self, *written); },
      [](stop_atom, const std::string& partial) { state::discard_checkpoint(partial); },
  };
}

}  // namespace troupe::actors
