#include "actors/supervisor/supervisor_speeds.hpp"

#include <cmath>
#include <map>

#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "engine/iteration/phase_exchange.hpp"
#include "engine/learning/stage_speeds.hpp"
#include "engine/profiling/profile_check.hpp"

namespace troupe::actors {

namespace {

/// Probes of machines that are alike differ by less, also where one of them is busy.
constexpr double kAlike = 1.25;

std::vector<NodePace> paces_of(const ParallelPlan& plan, const StepRecord& record) {
  const auto& profile_ms = record.prediction.profile_stage_ms;
  if (profile_ms.size() != plan.stages.size()) return {};  // Nothing is known of costs.
  const auto measured_ms = engine::measured_stage_ms(plan.stages.size(), record.events);
  std::map<NodeId, NodePace> paces;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    NodePace& pace = paces[plan.node_of(StageId{s})];
    pace.node = plan.node_of(StageId{s});
    pace.measured_ms += measured_ms[s];
    pace.profile_ms += profile_ms[s];
  }
  std::vector<NodePace> list;
  for (const auto& [node, pace] : paces) list.push_back(pace);
  return list;
}

std::string times_text(double times) {
  const long tenths = std::lround(10 * times);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " times";
}

/// What is wrong with a slow node; a clause.
std::string slow_text(double times) {
  return "it takes " + times_text(times) +
         " as long for the same work as it did, and other nodes do not";
}

/// Whether others can do some of what a node does: a layer that it works on has replicas.
bool others_help(const ParallelPlan& plan, NodeId node) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    if (plan.node_of(StageId{s}) == node &&
        engine::replicas_of(plan, plan.at(plan.stages[s].replica).group).size() > 1)
      return true;
  return false;
}

void tell(SupervisorSelf self, const SpeedChange& change, const std::string& why) {
  auto& state = self->state;
  observe::RunEvent event;
  event.time = engine::utc_now();
  event.step = state.job.loop.progress().step + 1;
  event.generation = state.job.members.generation();
  event.kind = "slow";
  if (!change.is_slow) event.kind = "fast-again";
  event.nodes = {change.node};
  event.why = why;
  event.tolerance_left = state.job.members.losses_borne();
  self->send(state.actors.recorder, std::make_shared<const observe::RunEvent>(event));
}

void fast_again(SupervisorSelf self, const SpeedChange& change) {
  auto& state = self->state;
  self->send(state.actors.scheduler, speed_atom::value, change.node, 1.0);
  const std::string why = "it is as fast as it was again";
  const bool has_help = others_help(state.configuration.plan, change.node);
  state.resources->logger.info(describe(state.job.members, change.node) + ": " + why +
                               (has_help ? ", and gets as many samples as before" : ""));
  tell(self, change, why);
}

void slowed_down(SupervisorSelf self, const SpeedChange& change) {
  auto& state = self->state;
  auto& logger = state.resources->logger;
  const std::string node = describe(state.job.members, change.node);
  const bool drains = state.resources->setup.job.recovery.drain_slow;
  const bool has_help = others_help(state.configuration.plan, change.node);
  const std::string why =
      slow_text(change.times) +
      (has_help && !drains ? "; it gets fewer samples until it is as fast again" : "");
  logger.warning(node + " has slowed down: " + why +
                 (drains ? ""
                         : "; look at its load and clocks; `troupe ctl RUN drain " +
                               std::to_string(change.node.value) +
                               "` takes it out, recovery.drain_slow = true does so by itself"));
  tell(self, change, why);
  if (!drains) return;
  if (auto leaves = drain(self, change.node, why, false); !leaves.ok())
    logger.warning("it stays in the job: " + leaves.error().message);
}

}  // namespace

void watch_speeds(SupervisorSelf self, const StepRecord& record) {
  auto& state = self->state;
  const ParallelPlan& plan = state.configuration.plan;
  for (const SpeedChange& change :
       state.slow_nodes.note(state.job.members.generation(), paces_of(plan, record)))
    if (change.is_slow)
      slowed_down(self, change);
    else
      fast_again(self, change);
  tell_speeds(self);  // As they are by now: one may be slower yet than when it was named.
}

void drain_slow_nodes(SupervisorSelf self) {
  auto& state = self->state;
  if (!state.resources->setup.job.recovery.drain_slow) return;
  for (const SlowNodeNote& note : state.slow_nodes.notes())
    if (!state.job.members.leaving().contains(note.node))
      (void)drain(self, note.node, slow_text(note.times), false);  // Or it stays, as was said.
}

void take_speed(SupervisorState& state, const NodeReady& ready) {
  const double profile_ms = state.resources->setup.profile.probe_ms;
  if (!(ready.probe_ms > 0 && profile_ms > 0)) return;
  const double times = ready.probe_ms / profile_ms;
  if (times < kAlike && 1 / times < kAlike) return;
  if (state.slow_nodes.times().contains(ready.node)) return;  // Of a try to take a job over.
  state.slow_nodes.start(ready.node, times);
  state.resources->logger.info(describe(state.job.members, ready.node) + " takes " +
                               times_text(times) +
                               " as long as the machine that the profile is of: it gets samples "
                               "by that until steps show how fast it is");
}

void recall_slow_nodes(SupervisorState& state, const std::set<NodeId>& there) {
  for (const SlowNodeNote& note : state.resources->resume.slow) {
    if (!there.contains(note.node)) continue;
    state.slow_nodes.recall(note);
    state.resources->logger.info(
        describe(state.job.members, note.node) + " was slow under the head before: it takes " +
        times_text(note.times) + " as long as it used to, and gets samples by that");
  }
}

void tell_speeds(SupervisorSelf self) {
  auto& state = self->state;
  for (const auto& [node, times] : state.slow_nodes.times())
    self->send(state.actors.scheduler, speed_atom::value, node, times);
}

void forget_speed(SupervisorSelf self, NodeId node) {
  auto& state = self->state;
  if (state.actors.scheduler && state.slow_nodes.times().contains(node))
    self->send(state.actors.scheduler, speed_atom::value, node, 1.0);
  state.slow_nodes.forget(node);
}

}  // namespace troupe::actors
