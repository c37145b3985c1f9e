#include "actors/supervisor/supervisor_regrouping.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <set>
#include <sstream>
#include <utility>

#include "actors/supervisor/supervisor_layout.hpp"
#include "actors/supervisor/supervisor_memory.hpp"
#include "actors/supervisor/supervisor_next_layout.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_speeds.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "actors/supervisor/supervisor_warm_up.hpp"
#include "engine/execution/stage_kinds.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "engine/profiling/profile_check.hpp"
#include "engine/setup/source_nodes.hpp"
#include "runtime/observe/plan_words.hpp"
#include "runtime/vocabulary/joined.hpp"
#include "scheduler/layout/layout_request.hpp"
#include "scheduler/recovery/next_layout.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;

/// Back to the last finished step: nothing that was planned beyond it counts.
void rewind(SupervisorState& state) {
  state.job.loop.rewind();
  state.collections.clear();
  state.saves.ends_job = false;
}

/// `41.3 samples per s`.
std::string rate_text(double rate) {
  std::ostringstream text;
  text << std::setprecision(3) << rate << " samples per s";
  return text.str();
}

std::string node_count_text(std::int32_t nodes) {
  return std::to_string(nodes) + (nodes == 1 ? " node" : " nodes");
}

std::string in_ms(double ms) { return std::to_string(std::lround(ms)) + " ms"; }

/// `the loss of node 2 and the joining of node 5`.
std::string change_words(const Regrouping& regrouping) {
  std::vector<std::string> words;
  if (regrouping.is_takeover) words.push_back("the loss of the head");
  for (const auto& [what, nodes] : {std::pair{"the loss of ", &regrouping.lost},
                                    std::pair{"the leave of ", &regrouping.drained},
                                    std::pair{"the joining of ", &regrouping.joined}})
    if (!nodes->empty()) words.push_back(what + who_text(*nodes));
  return joined_by_and(words);
}

/// Why these nodes join or leave.
std::string reasons_of(const Regrouping& regrouping, const std::vector<NodeId>& nodes) {
  std::string text;
  for (const NodeId node : nodes) text += (text.empty() ? "" : "; ") + regrouping.reasons.at(node);
  return text;
}

/// Whether nodes can take a layout up: nodes would find only when they build it that no kind runs a
/// stage. Errors: as `engine::check_sources`, `engine::check_stage_kinds` and
/// `engine::check_state_memory`.
Status can_be_taken_up(const engine::JobSetup& setup, const ParallelPlan& plan,
                       const engine::DeviceRooms& rooms) {
  if (auto seen = engine::check_sources(setup.job, plan.nodes()); !seen.ok()) return seen;
  auto run =
      engine::check_stage_kinds(plan, setup.modules(), setup.job.scheduler.offloads("activations"));
  return run.ok() ? engine::check_state_memory(setup.job, plan, rooms) : run;
}

/// What the change took, of whichever kind.
observe::RunEvent phases_of(const SupervisorState& state, Time now) {
  const Regrouping& regrouping = state.regrouping;
  const LayoutChange& change = state.change;
  observe::RunEvent event;
  event.detect_ms = regrouping.detect_ms;
  const double in_all_ms = milliseconds_between(regrouping.noticed, change.begun);
  event.decide_ms = std::max(0.0, in_all_ms - regrouping.waited_ms);
  event.waited_ms = regrouping.waited_ms;
  add_copies(change, event);
  event.rebuild_ms = milliseconds_between(change.fetched, now);
  event.samples_per_s_before = state.samples_per_s_before;
  return event;
}

void add_warm_up(const Regrouping& regrouping, observe::RunEvent& event) {
  if (!regrouping.warmed) return;
  const WarmingUp& warmed = *regrouping.warmed;
  event.warm_up_ms = milliseconds_between(warmed.begun, warmed.ended) - warmed.connect_ms;
  if (event.has_phases) event.connect_ms += warmed.connect_ms;  // Of no loss, nor of who left.
  event.warm_up_bytes = warmed.bytes;
  event.warm_up_steps = warmed.steps;
}

/// An event for each kind of what happened, behind which state lies as in `placed`. Losses come
/// first: these cost the most. `first`: what the change took, where that is known.
std::vector<observe::RunEvent> events_of(const SupervisorState& state, const Regrouping& regrouping,
                                         const StatePlacement& placed,
                                         const observe::RunEvent& first) {
  std::vector<observe::RunEvent> events;
  const auto add = [&](const char* kind, const std::vector<NodeId>& nodes, std::string why) {
    observe::RunEvent event;
    if (events.empty()) event = first;
    event.has_phases = events.empty();
    event.time = engine::utc_now();
    event.step = state.job.loop.progress().step + 1;
    event.generation = state.job.members.generation();
    event.kind = kind;
    event.nodes = nodes;
    event.why = std::move(why);
    event.tolerance_left = std::max(0, tolerance_of(placed));
    events.push_back(std::move(event));
  };
  if (regrouping.is_takeover || !regrouping.lost.empty())
    add(regrouping.is_takeover ? "head-lost" : "lost", regrouping.lost, regrouping.why_lost);
  if (regrouping.is_takeover) events.back().incarnation = state.resources->incarnation;
  if (!regrouping.drained.empty())
    add("drained", regrouping.drained, reasons_of(regrouping, regrouping.drained));
  if (!regrouping.joined.empty()) {
    add("joined", regrouping.joined, reasons_of(regrouping, regrouping.joined));
    add_warm_up(regrouping, events.back());
  }
  return events;
}

}  // namespace

std::string who_text(const std::vector<NodeId>& nodes) {
  std::vector<std::string> numbers;
  for (const NodeId node : nodes) numbers.push_back(std::to_string(node.value));
  return (nodes.size() == 1 ? "node " : "nodes ") + joined_by_and(numbers);
}

Status check_holders(const SupervisorState& state, const StatePlacement& left) {
  const auto is_orphan = [](const Shard& shard) { return shard.holders.empty(); };
  const auto orphan = std::find_if(left.begin(), left.end(), is_orphan);
  if (orphan == left.end()) return Done{};
  const engine::JobSetup& setup = state.resources->setup;
  std::set<LayerId> layers;
  for (const Shard& shard : left)
    if (is_orphan(shard)) {
      const auto& uses = setup.parameters[shard.key.parameter.index()].uses;
      layers.insert(uses.begin(), uses.end());
    }
  const auto others = std::count_if(orphan, left.end(), is_orphan) - 1;
  return Error{Errc::infeasible,
               "no other node has " + setup.parameters[orphan->key.parameter.index()].name +
                   (others > 0 ? " and " + std::to_string(others) + " more shards" : "") + " (" +
                   observe::layer_words(setup.model, layers) +
                   "), so that what is left is no whole model",
               "parallel", "give each module replicas on several nodes"};
}

engine::DeviceRooms rooms_of(const SupervisorState& state) {
  const job::Cluster& cluster = state.resources->setup.job.cluster;
  const Membership& members = state.job.members;
  engine::DeviceRooms rooms{engine::memory_at_hand(cluster)};
  if (cluster.device_memory_gib > 0) return rooms;
  std::map<std::string, std::int64_t> on_host;
  for (std::size_t i = 0; i < members.size(); ++i)
    if (members.is_there(NodeId{i})) ++on_host[members[NodeId{i}].host];
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::int64_t bytes = state.links[i].ready.device_memory;
    if (!members.is_there(NodeId{i}) || bytes == 0) continue;
    // Which GPUs a node sees is for who starts it to say.
    const std::int64_t sharers = cluster.device == "cuda" ? 1 : on_host.at(members[NodeId{i}].host);
    rooms.own[NodeId{i}] = Bytes{bytes / sharers};
  }
  return rooms;
}

Status fits_beside(const SupervisorState& state, const std::map<DeviceSlot, Bytes>& arriving) {
  return engine::check_state_memory(state.resources->setup.job, state.configuration.plan,
                                    rooms_of(state), arriving);
}

void need_templates(SupervisorState& state) {
  if (state.templates || !state.resources->draw_templates) return;
  auto drawn = state.resources->draw_templates(trained_layout(state));
  if (!drawn.ok())
    return state.resources->logger.warning(
        "no templates for losses before the first batch is planned: " + to_string(drawn.error()));
  state.templates = std::make_shared<const scheduler::TemplateSet>(std::move(drawn).value());
}

scheduler::ChangingJob changing_job(const SupervisorState& state, const StatePlacement& left) {
  static const scheduler::TemplateSet none{};
  const engine::JobSetup& setup = state.resources->setup;
  const job::Cluster& cluster = setup.job.cluster;
  const engine::DeviceRooms rooms = rooms_of(state);
  scheduler::ChangingJob changing{trained_layout(state),
                                  {cluster.nodes, cluster.devices_per_node},
                                  state.templates ? *state.templates : none,
                                  setup.parameters,
                                  setup.job.train.global_batch_size,
                                  engine::tolerance_of(setup.job, rooms),
                                  cluster.spares,
                                  state.configuration.plan.nodes(),
                                  left,
                                  network_bytes_per_ms(state),
                                  state.step_ms_before,
                                  quiet_ms(state)};
  changing.fits = [&setup, rooms](const ParallelPlan& plan) {
    return can_be_taken_up(setup, plan, rooms);
  };
  changing.fits_beside = [&state](const std::map<DeviceSlot, Bytes>& arriving) {
    return fits_beside(state, arriving);
  };
  return changing;
}

Status plan_regrouping(const SupervisorState& state, const std::set<NodeId>& nodes,
                       Regrouping& regrouping) {
  if (auto held = check_holders(state, regrouping.left); !held.ok()) return held;
  // Before anything else is tried: without a source no layout helps.
  if (auto seen = engine::check_sources(state.resources->setup.job, nodes); !seen.ok()) return seen;
  auto next = next_layout_of(state, regrouping.left, nodes);
  if (!next.ok()) return std::move(next).error();
  regrouping.plan = std::move(next.value().plan);
  regrouping.idle = std::move(next.value().idle);
  regrouping.unfilled = std::move(next.value().unfilled);
  regrouping.change = {};
  regrouping.change.moves = std::move(next.value().moves);
  regrouping.change.want = std::move(next.value().want);
  regrouping.choice = std::move(next.value().why);
  regrouping.room = std::move(next.value().room);
  return Done{};
}

void regroup(Self self) {
  auto& state = self->state;
  rewind(state);
  if (state.waiting)
    state.regrouping.waited_ms += milliseconds_between(state.waiting->begun, now(self));
  bring_up(self, state.regrouping.plan, state.regrouping.change);
  for (observe::RunEvent& event : events_of(state, state.regrouping, state.change.want, {})) {
    event.is_under_way = true;
    self->send(state.actors.recorder, std::make_shared<const observe::RunEvent>(std::move(event)));
  }
}

void regrouped(Self self) {
  auto& state = self->state;
  const Regrouping regrouping = state.regrouping;
  tell_of_change(self);
  for (const NodeId node : regrouping.drained)
    if (is_awaited_by_save(state, node))
      give_up_save(self, "a node that leaves has not written its share");
  state.replay = events_of(state, regrouping, state.change.want, phases_of(state, now(self)));
  state.replayed_change = change_words(regrouping);
  std::string idle;
  if (!regrouping.idle.empty())
    idle = "; without work: " + who_text({regrouping.idle.begin(), regrouping.idle.end()});
  state.resources->logger.info("going on from step " + std::to_string(state.replay.front().step) +
                               " after " + state.replayed_change + " on layout " +
                               std::to_string(state.replay.front().generation) + ", " +
                               observe::layout_words(state.configuration.plan) + idle +
                               (regrouping.choice.empty() ? "" : "; " + regrouping.choice));
  if (!regrouping.is_takeover) state.job.members.count_change();
  const bool keeps_spares = state.resources->setup.job.cluster.spares > 0;
  if (regrouping.is_takeover || keeps_spares) state.job.members.set_aside(regrouping.idle);
  for (const NodeId node : regrouping.drained) forget_node(self, node, "");
  state.job.members.place_newcomers(regrouping.joined);
  // Nobody waited for the copies of spare nodes: these come while the others train.
  if (keeps_spares && !(regrouping.lost.empty() && regrouping.drained.empty()))
    state.job.members.look_again(state.configuration.plan.nodes(), regrouping.unfilled);
  state.regrouping = {};
}

namespace {

/// `1, 2 and 4 nodes`.
std::string sizes_of(const scheduler::TemplateSet& set, const std::string& unit) {
  std::vector<std::string> sizes;
  for (const auto& made : set.templates) sizes.push_back(std::to_string(made.node_count));
  const std::string text = joined_by_and(sizes);
  return text + " " + unit + (text == "1" ? "" : "s");
}

/// What losses and joins make pipelines of.
std::string template_words(const SupervisorState& state) {
  const scheduler::TemplateSet& set = *state.templates;
  const ParallelPlan& plan = state.configuration.plan;
  std::string text = set.templates.empty() ? "" : "pipelines of " + sizes_of(set, "node");
  for (std::size_t g = 0; g < std::min(set.groups.size(), plan.module_groups.size()); ++g)
    if (!set.groups[g].templates.empty())
      text += (text.empty() ? "" : "; ") + plan.module_groups[g].name + " replicas of " +
              sizes_of(set.groups[g], "device");
  return text.empty() ? "no templates, so that losses go on from what survives whole"
                      : "templates for losses and joins: " + text;
}

}  // namespace

void take_templates(Self self, const TemplateSetPtr& templates) {
  auto& state = self->state;
  state.templates = templates;
  if (state.resources->setup.job.cluster.fault_tolerance > 0)
    state.resources->logger.info(template_words(state));
  state.job.members.look_again(state.configuration.plan.nodes());
}

void tell_of_change(Self self) {
  auto& state = self->state;
  for (observe::RunEvent& event : std::exchange(state.replay, {}))
    self->send(state.actors.recorder, std::make_shared<const observe::RunEvent>(std::move(event)));
}

void tell_of_losses(Self self) {
  auto& state = self->state;
  tell_of_change(self);  // Of one before, whose first step has not ended.
  Regrouping untold = std::exchange(state.regrouping, {});
  untold.joined.clear();
  untold.drained.clear();
  observe::RunEvent seen;
  seen.detect_ms = untold.detect_ms;
  seen.has_layout = false;
  if (state.waiting) seen.waited_ms = milliseconds_between(state.waiting->begun, now(self));
  state.replay = events_of(state, untold, untold.left, seen);
  tell_of_change(self);
}

namespace {

/// How many more losses are borne, beside what is promised where that is more.
std::string bearing_words(const SupervisorState& state, std::int32_t left) {
  const std::int32_t promised = state.resources->setup.job.cluster.fault_tolerance;
  return (left > 0 ? std::to_string(left) + " more may be lost"
                   : "from now on the loss of a node may end the job") +
         (left < promised ? ", though cluster.fault_tolerance promises " +
                                std::to_string(promised) + ": nodes that join can bring that back"
                          : "");
}

}  // namespace

void replayed(Self self, const observe::StepMetrics& step) {
  auto& state = self->state;
  if (state.replay.empty()) return;
  observe::RunEvent& event = state.replay.front();
  event.decode_ms = step.data_wait_ms;
  event.replay_ms = step.step_ms - step.data_wait_ms;
  event.samples_per_s_first = samples_per_s(step);
  const observe::RunEvent& joined = state.replay.back();  // Where anybody did.
  const double before_ms = state.step_ms_before;
  std::string warmed;
  if (joined.warm_up_steps > 0)
    warmed = scheduler::byte_text(static_cast<double>(joined.warm_up_bytes)) +
             " of state had come during " + step_count_text(joined.warm_up_steps) + " before; ";
  const std::string sent = scheduler::byte_text(static_cast<double>(event.copy_bytes)) +
                           " of state moved" +
                           (event.senders > 0 ? " from " + node_count_text(event.senders) : "");
  const std::string before = before_ms > 0 ? " (the one before took " + in_ms(before_ms) + ", " +
                                                 rate_text(event.samples_per_s_before) + ")"
                                           : "";
  const std::string waited =
      event.waited_ms > 0 ? "waited for nodes for " + in_ms(event.waited_ms) + ", " : "";
  state.resources->logger.info(
      state.replayed_change + ": noticed after " + in_ms(event.detect_ms) + ", decided in " +
      in_ms(event.decide_ms) + ", " + waited + "connected in " + in_ms(event.connect_ms) + ", " +
      sent + " in " + in_ms(event.copy_ms) + ", stages built in " + in_ms(event.rebuild_ms) +
      ", samples newly dealt waited for " + in_ms(event.decode_ms) + ", step " +
      std::to_string(event.step) + " trained in " + in_ms(event.replay_ms) + ", " +
      rate_text(event.samples_per_s_first) + before + "; " + warmed +
      bearing_words(state, event.tolerance_left));
  tell_of_change(self);
}

void forget_node(Self self, NodeId id, const std::string& why) {
  self->state.job.forget(id);
  let_go_of_node(self, id, why);
}

void let_go_of_node(Self self, NodeId id, const std::string& why) {
  auto& state = self->state;
  if (const auto& handle = state.links[id.index()].handle)
    self->send(caf::actor_cast<NodeActor>(handle), stop_atom::value,
               why.empty() ? "it has left the job, which goes on"
                           : "the job goes on without this node: " + why,
               why.empty() ? 0 : 1);
  forget_speed(self, id);
  state.resources->transport->disconnect(id.value, {Errc::transport_failed, why, {}, {}});
  std::erase_if(state.configuration.nodes,
                [id](const NodeReady& ready) { return ready.node == id; });
  std::erase_if(state.devices, [id](const DeviceSlot& device) { return device.node == id; });
}

}  // namespace troupe::actors
