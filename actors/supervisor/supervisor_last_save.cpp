#include "actors/supervisor/supervisor_last_save.hpp"

#include <string>

#include "actors/supervisor/saved_parts.hpp"
#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_recovery.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_state.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;

/// The step that is saved: one that is decided is finished before.
std::int64_t step_to_save(const StepLoop& loop) {
  return loop.progress().step + (loop.is_decided() ? 1 : 0);
}

/// Begins to end the job by an error, behind a save. `unsaved`: why there can be none; empty: there
/// can. Returns false where there is none: then it has ended.
bool begin_to_end(Self self, const Error& error, const std::string& unsaved = {}) {
  auto& state = self->state;
  if (state.gathering || !state.job.is_at_work()) {
    fail(self, error);
    return false;
  }
  if (state.job.is_stopping()) {
    if (!state.stopping.error) state.stopping.error = error;
    return true;
  }
  if (!has_unsaved(state) || !unsaved.empty()) {
    state.stopping.error = error;  // The end says what is saved.
    state.stopping.unsaved = unsaved;
    fail(self, error);
    return false;
  }
  state.resources->logger.warning("the job ends once its nodes have saved step " +
                                  std::to_string(step_to_save(state.job.loop)) + ": " +
                                  error.message);
  const bool begins_again = would_begin_again(state, error);
  decide_stop(self, error.message, exit_code(error));
  state.stopping.error = error;
  state.stopping.begins_again = begins_again;
  return true;
}

}  // namespace

bool has_unsaved(const SupervisorState& state) {
  const StepLoop& loop = state.job.loop;
  if (loop.is_decided() && loop.under_way().front().outcome->decision.commit) return true;
  return updates_in(loop.progress_now(state.job.members.generation())) > state.saves.last_updates;
}

void save_and_fail(Self self, const Error& error) {
  if (begin_to_end(self, error)) go_on_stopping(self);
}

void save_and_fail_without(Self self, NodeId lost, const std::string& what, const Error& error) {
  auto& state = self->state;
  // Its event comes also where the job ends at once; where others save it is not told twice.
  if (state.job.is_at_work()) add_loss(state, state.regrouping, lost, what, now(self));
  const bool goes_too = worth_saving(state, state.job.left_without(lost)) == WorthSaving::nothing;
  const std::string unsaved = goes_too ? unsaved_without(state, lost) : "";
  if (begin_to_end(self, error, unsaved)) lose_while_stopping(self, lost, what);
}

}  // namespace troupe::actors
