#include "actors/supervisor/supervisor_warm_up.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "actors/supervisor/supervisor_layout.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "engine/state/state_memory.hpp"
#include "scheduler/recovery/warm_up.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;

/// What comes to a device during a step; none: waiting for it would take as long.
std::optional<Bytes> at_a_time(const SupervisorState& state) {
  const job::Job& job = state.resources->setup.job;
  if (job.debug.warm_up_bytes > 0) return Bytes{job.debug.warm_up_bytes};
  // Steps during which state comes may take longer for it.
  const double step_ms = state.warming ? state.warming->step_ms : state.step_ms_before;
  return scheduler::warm_up_at_a_time(network_bytes_per_ms(state), step_ms);
}

/// Whether all would wait longer for the state than these layouts cost them.
bool pays(const SupervisorState& state, const scheduler::WarmUp& next, const Regrouping& wanted) {
  const job::Job& job = state.resources->setup.job;
  if (state.warming || job.debug.warm_up_bytes > 0) return true;
  return scheduler::warm_up_pays(next, copy_ms(state, wanted.change));
}

/// Whether there is room for all that is to come beside the present layout: what stands by has room
/// for gradients too, which a copy while all wait does without.
bool has_room(const SupervisorState& state, const Regrouping& wanted) {
  const job::Job& job = state.resources->setup.job;
  const Bytes all{std::numeric_limits<std::int64_t>::max()};
  const auto warm = scheduler::next_warm_up(
      {trained_layout(state), state.configuration.plan, wanted.plan, job.train.dtype, all});
  return engine::check_state_memory(job, warm.plan, rooms_of(state)).ok();
}

}  // namespace

bool warm_up(Self self, const Regrouping& wanted) {
  auto& state = self->state;
  const auto bytes = at_a_time(state);
  // Who leaves is waited for, and whoever would wait beside it waits anyway.
  if (!bytes || !wanted.drained.empty()) return false;
  const Dtype dtype = state.resources->setup.job.train.dtype;
  scheduler::WarmUp next = scheduler::next_warm_up(
      {trained_layout(state), state.configuration.plan, wanted.plan, dtype, *bytes});
  if (next.arriving.empty() || !pays(state, next, wanted) || !has_room(state, wanted)) return false;
  auto change = plan_fitting_change(state, next.plan);
  if (!change.ok()) {
    state.resources->logger.info("state is moved while all wait: " + change.error().message);
    return false;
  }
  if (!state.warming) {
    state.resources->logger.info(
        who_text(wanted.joined) + (wanted.joined.size() == 1 ? " takes" : " take") +
        " state over while the others train, during " + step_count_text(next.layouts_left + 1));
    state.warming = WarmingUp{state.configuration.plan, now(self), state.step_ms_before};
  }
  ++state.warming->steps;
  state.warming->bytes += change.value().moves.sent_bytes;
  change.value().arriving = std::move(next.arriving);
  bring_up(self, next.plan, std::move(change).value());
  return true;
}

bool give_up_warm_up(Self self) {
  auto& state = self->state;
  if (!state.warming || state.job.phase() != JobPhase::training || state.job.is_stopping())
    return false;
  const ParallelPlan base = state.warming->base;
  auto change = plan_change(state, base, state.job.members.placed());
  if (!change.ok()) return false;  // It only lets go.
  bring_up(self, base, std::move(change).value());
  return true;
}

const ParallelPlan& trained_layout(const SupervisorState& state) {
  return state.warming ? state.warming->base : state.configuration.plan;
}

std::string step_count_text(std::int64_t steps) {
  return std::to_string(steps) + (steps == 1 ? " step" : " steps");
}

}  // namespace troupe::actors
