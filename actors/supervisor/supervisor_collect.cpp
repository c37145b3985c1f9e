#include "actors/supervisor/supervisor_collect.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_records.hpp"
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
/// Before it offers, a device copies its part of the model to its host: a minute for all of a large
/// GPU, and some more where eight of them share the memory of a busy host. Nothing takes so long.
constexpr auto kOfferTimeout = std::chrono::minutes(10);

void collect_next(Self self) {
  auto& state = self->state;
  if (state.collections.empty()) {
    state.saves.ends_job = true;
    if (!saves_at_end(state)) end(self, {0, ""});
    return;
  }
  state.offers.clear();
  state.offering_devices = 0;
  state.asked_to_offer = now(self);
  for (const NodeId node : state.job.members.present())
    send_to_node(self, node, collect_atom::value, state.collections.front());
}

/// Nodes of devices that have not offered their tensors.
std::vector<NodeId> late_nodes(const SupervisorState& state) {
  std::map<NodeId, std::int64_t> waits;
  for (const DeviceSlot& device : state.devices) ++waits[device.node];
  for (const Offers& offers : state.offers) --waits[offers.node];
  std::vector<NodeId> late;
  for (const auto& [node, devices] : waits)
    if (devices > 0) late.push_back(node);
  return late;
}

/// `has not offered its tensors of the trained model for 41 s`.
std::string late_text(Duration waited) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(waited);
  return "has not offered its tensors of the trained model for " + std::to_string(whole.count()) +
         " s";
}

/// What would be written is at these nodes and does not come.
void lose_late_nodes(Self self, const std::vector<NodeId>& late, Duration waited) {
  auto& state = self->state;
  for (const NodeId node : late) {
    if (state.job.is_over()) return;
    const std::string what = describe(state.job.members, node) + " was lost: it " +
                             late_text(waited) + long_work_text(state, node, now(self));
    if (state.job.is_stopping())
      lose_while_stopping(self, node, what);
    else if (const auto hindrance = go_on_without(self, node, what))
      fail(self, {Errc::timed_out,
                  what + *hindrance,
                  {},
                  "look at the devices and the memory of this machine, then start the job again"});
    state.job.members.fell_silent(node);  // Its process is still there, and was told to end.
  }
}

}  // namespace

bool is_with_recorder(const SupervisorState& state) {
  // Devices of a node that was lost since then had offered theirs, too.
  return state.job.phase() == Phase::collecting && state.offering_devices >= state.devices.size();
}

bool is_collected(const SupervisorState& state) {
  return is_with_recorder(state) && state.collections.size() <= 1;
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
  for (const auto& [node, since, error] : std::exchange(state.lost_while_collected, {})) {
    if (state.job.is_stopping() || state.job.is_over()) return;
    const bool is_taken = state.job.members[node].since != since;
    const auto hindrance = go_on_without(self, node, error.message, is_taken);
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

void watch_offers(Self self) {
  auto& state = self->state;
  if (state.job.phase() != Phase::collecting || state.job.is_stopping()) return;
  const std::vector<NodeId> late = late_nodes(state);
  if (late.empty()) return;
  const Duration waited = now(self) - state.asked_to_offer;
  const Duration limit =
      std::max<Duration>(seconds(state.resources->setup.job.train.stall_timeout_s), kOfferTimeout);
  if (state.stalls.hopeless(waited, limit)) return lose_late_nodes(self, late, waited);
  if (!state.stalls.overdue(waited)) return;
  for (const NodeId node : late)
    state.resources->logger.warning(describe(state.job.members, node) + " " + late_text(waited) +
                                    long_work_text(state, node, now(self)));
}

}  // namespace troupe::actors
