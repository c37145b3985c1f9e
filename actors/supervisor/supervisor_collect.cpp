#include "actors/supervisor/supervisor_collect.hpp"

#include <memory>
#include <utility>

#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_recovery.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_state.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = JobPhase;

/// The recorder gives up earlier and says why.
constexpr auto kCollectTimeout = std::chrono::seconds(120);

void collect_next(Self self) {
  auto& state = self->state;
  if (state.collections.empty()) {
    state.saves.ends_job = true;
    if (!saves_at_end(state)) end(self, {0, ""});
    return;
  }
  state.offers.clear();
  state.offering_devices = 0;
  for (const NodeId node : state.job.members.present())
    send_to_node(self, node, collect_atom::value, state.collections.front());
}

}  // namespace

bool is_with_recorder(const SupervisorState& state) {
  return state.job.phase() == Phase::collecting && state.offering_devices == state.devices.size();
}

bool is_collected(const SupervisorState& state) {
  return is_with_recorder(state) && state.collections.size() == 1;
}

void begin_collecting(Self self) {
  auto& state = self->state;
  state.job.collect();
  tell_of_change(self);
  if (lose_broken_ways(self)) return;
  // A job that goes on after step 1 has them no more; they were written before.
  if (state.resources->setup.job.train.dump_gradients && state.resources->resume.is_start())
    state.collections.push_back(Collection::first_gradients);
  state.collections.push_back(Collection::parameters);
  collect_next(self);
}

void collect_without_lost(Self self) {
  auto& state = self->state;
  for (const auto& [node, error] : std::exchange(state.lost_while_collected, {})) {
    if (state.job.is_stopping() || state.job.is_over()) return;
    const auto hindrance = go_on_without(self, node, error.message);
    if (hindrance)
      return fail(self, {error.code, error.message + *hindrance, error.where, error.fix});
  }
}

void offered(Self self, const Offers& offers) {
  auto& state = self->state;
  if (state.job.phase() != Phase::collecting) return;
  if (offers.epoch_number != state.job.members.generation()) return;
  state.offers.push_back(offers);
  if (++state.offering_devices != state.devices.size()) return;
  const EpochNumber epoch = state.job.members.generation();
  const auto all = std::make_shared<const std::vector<Offers>>(state.offers);
  self->request(state.actors.recorder, kCollectTimeout, collect_atom::value,
                state.collections.front(), state.job.members.generation(), all)
      .then(
          [self, epoch](finish_atom) {
            if (epoch != self->state.job.members.generation()) return;  // Collected anew.
            if (epoch == self->state.uncollected) return;               // It said so before.
            self->state.collections.pop_front();
            collect_next(self);
          },
          [self, epoch](const caf::error&) {
            if (epoch != self->state.job.members.generation()) return;
            if (!self->state.lost_while_collected.empty()) return collect_without_lost(self);
            fail(self, {Errc::timed_out,
                        "the final parameters could not be collected within " +
                            std::to_string(kCollectTimeout.count()) + " s",
                        self->state.resources->setup.job.job.run_dir.string(),
                        "look at the network between the nodes and this machine and at the disk of "
                        "the run folder, then start the job again"});
          });
}

}  // namespace troupe::actors
