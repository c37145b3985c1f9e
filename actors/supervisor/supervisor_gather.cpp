#include "actors/supervisor/supervisor_gather.hpp"

#include <algorithm>
#include <utility>

#include "actors/node/peers.hpp"
#include "actors/supervisor/gathered.hpp"
#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_gather_joins.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_speeds.hpp"
#include "actors/supervisor/supervisor_start.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "actors/supervisor/supervisor_takeover.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;

/// Nodes look for a head several times a second: after so long without another one, those that the
/// layout needs are there, and so are the others.
constexpr auto kQuiet = std::chrono::milliseconds(600);

/// Nobody holds all of the model: the job goes on from its checkpoint, or begins.
void go_on_without(Self self) {
  auto& state = self->state;
  const GatherWish& wish = *state.resources->gather;
  if (auto opened = wish.open(nullptr); !opened.ok()) return fail(self, opened.error());
  Gathering gathering = *std::exchange(state.gathering, std::nullopt);
  begin(self);
  wish.start_nodes({});
  answer_later_ones(self, std::move(gathering.later));
}

/// The order to finish what the head before began. Their devices say so.
void give_word(Self self, const Gathered& gathered) {
  auto& state = self->state;
  Gathering& gathering = *state.gathering;
  for (const NodeId id : gathered.must_settle) {
    send_to_node(self, id, settle_atom::value, gathered.epoch_number);
    NodeHolding& holding = gathering.holdings[id];
    holding.epoch_number = gathered.epoch_number;
    holding.fetched_epoch = 0;
    holding.plan = gathered.plan;
    holding.arriving = gathered.arriving;
  }
  for (std::size_t i = 0; i < gathered.plan.devices.size(); ++i)
    if (gathered.must_finish.contains(gathered.plan.devices[i].node))
      gathering.unfinished[DeviceId{i}] = gathered.plan.devices[i].node;
  for (const NodeId id : gathered.must_finish) send_to_node(self, id, gathered.verdicts.back());
  gathering.finished = gathered.progress;
  gathering.until = now(self) + seconds(state.resources->setup.job.cluster.join_timeout_s);
}

/// Takes note of whom the head does not reach: one that died just now, or is cut off.
void connect_members(SupervisorState& state, Gathering& gathering) {
  gathering.is_connected = true;
  for (const auto& [id, holding] : gathering.holdings) {
    state.job.members.ready(id, false);
    NodeReady& ready = state.links[id.index()].ready;
    ready = holding.ready;
    ready.data = {};
    ready.plugins = {};
    ready.stage_kinds = {};
    if (auto connected = connect_to(*state.resources->transport, ready); connected.ok())
      take_speed(state, ready);
    else
      gathering.unreached.emplace(id, std::move(connected).error());
  }
}

/// Then it is the head that is cut off, and another one may reach them.
bool reaches_nobody(const Gathering& gathering) {
  return gathering.unreached.size() == gathering.holdings.size();
}

Error cut_off_head(const SupervisorState& state, const Gathering& gathering) {
  const auto& [first, reason] = *gathering.unreached.begin();
  Error why = reason;
  why.where = describe(state.job.members, first);
  why.message =
      "the head reaches none of the nodes that wait for it for tensors: " + reason.message +
      "; nodes of this run go on waiting for a head, with their state";
  return why;
}

/// Those that were gathered are of no use to the job, which can go on without them.
void do_without(Self self, const std::string& why) {
  auto& state = self->state;
  if (const Status& without = state.resources->gather->without; !without.ok())
    return fail(self, without.error());  // They may be of use to another head.
  while (!state.gathering->holdings.empty())
    dismiss(self, state.gathering->holdings.begin()->first, why);
  go_on_without(self);
}

/// They hold a part of the model, of a step that is in no checkpoint, and nobody has said that it
/// may be given up: those that are missing may only be out of reach.
Error half_a_model(const GatherWish& wish, const Gathered& gathered, const Error& not_whole) {
  const std::string step = std::to_string(gathered.progress.step);
  const std::string saved = std::to_string(wish.saved_step);
  const std::string missing = missing_text(gathered);
  Error why{Errc::infeasible,
            "nodes of this run wait for their head with the state of step " + step + ", and " +
                not_whole.message + "; " +
                (missing.empty() ? "none of these nodes has any of it" : "missing: " + missing),
            {},
            "where these nodes still run, let them reach this head (they and the others keep "
            "their state for cluster.head_timeout_s), and start it again; else "};
  if (!wish.without.ok()) why.message += "; " + wish.without.error().message;
  if (wish.saved_step > 0)
    why.fix +=
        "recovery.from_checkpoint=true goes back to the checkpoint of step " + saved + ", or ";
  why.fix += "--fresh begins anew, without what they hold";
  return why;
}

/// Whether a new node stands at the place of each that is missing (`troupe node --node N`): whoever
/// held that part of the model is gone for good, and no other head finds it. Who has come itself is
/// there, though of no use to this head; and where nobody is missing nobody is replaced.
bool are_replaced(const Gathering& gathering, const std::vector<NodeId>& missing) {
  return !missing.empty() && std::ranges::all_of(missing, [&](NodeId node) {
    return !gathering.holdings.contains(node) &&
           std::ranges::any_of(gathering.later, [node](const Latecomer& one) {
             return one.hello.wanted_node == node.value;
           });
  });
}

/// `late`: who was to finish the last step, and did not in time.
void decide(Self self, const std::set<NodeId>& late) {
  auto& state = self->state;
  const GatherWish& wish = *state.resources->gather;
  if (state.gathering->holdings.empty()) return do_without(self, {});
  Gathered gathered = weigh(state.gathering->holdings);
  set_aside(gathered, late);
  set_unreached(gathered, state.gathering->unreached);
  const engine::JobSetup& setup = state.resources->setup;
  const auto before = state_before(gathered, setup.parameters, setup.job.train.dtype);
  const auto placed = held_by_members(gathered, before);
  const std::int64_t step = gathered.progress.step, saved = wish.saved_step;
  const Status whole = check_holders(state, placed);
  const bool is_given_up =
      wish.goes_back || (setup.job.recovery.from_checkpoint &&
                         are_replaced(*state.gathering, missing_nodes(gathered)));
  // Nobody is sent away before: what they hold would be lost to another head too.
  if (!whole.ok() && !wish.ends && !is_given_up && (step > saved || gathered.members.empty()))
    return leave_gathered(self, half_a_model(wish, gathered, whole.error()));
  if (!whole.ok() && !(wish.ends && step > saved)) return do_without(self, whole.error().message);
  if (step < saved)
    return do_without(self, "step " + std::to_string(saved) +
                                " is saved, and they have only come to " + std::to_string(step));
  Gathering& gathering = *state.gathering;
  // Some were sent away before.
  for (const auto& [id, why] : gathered.strays)
    if (gathering.holdings.contains(id) && !gathering.unreached.contains(id))
      dismiss(self, id, why);
  if (!gathered.must_finish.empty() || !gathered.must_settle.empty())
    return give_word(self, gathered);
  const bool is_known = gathering.is_connected;
  if (!is_known) connect_members(state, gathering);
  const bool reaches_all = gathering.unreached.empty();
  // To save takes no way for tensors.
  if (!whole.ok() || (wish.ends && !reaches_all)) return save_held(self, gathered, before, placed);
  if (!reaches_all && reaches_nobody(gathering))
    return leave_gathered(self, cut_off_head(state, gathering));
  if (!reaches_all && !is_known) return decide(self, late);  // Without them.
  take_over(self, gathered, placed);
}

/// Whether all that the newest layout needs are there, and nobody came for a while.
bool is_complete(const Gathering& gathering, Time now) {
  const auto places = weigh(gathering.holdings).plan.nodes();
  return !places.empty() && now - gathering.last_join > kQuiet &&
         std::all_of(places.begin(), places.end(),
                     [&](NodeId node) { return gathering.holdings.contains(node); });
}

}  // namespace

void begin_gathering(Self self) {
  auto& state = self->state;
  state.job.gather();
  state.gathering.emplace();
  state.gathering->begun = now(self);
  state.gathering->until = now(self) + seconds(state.resources->gather->window_s);
  state.resources->logger.info("looking for nodes that wait for the head of this run");
}

void gathered_device_finished(Self self, const engine::DeviceReport& report) {
  Gathering& gathering = *self->state.gathering;
  const auto device = gathering.unfinished.find(report.device);
  if (device == gathering.unfinished.end() || report.step != gathering.finished.step) return;
  const NodeId node = device->second;
  gathering.unfinished.erase(device);
  const bool all = std::none_of(gathering.unfinished.begin(), gathering.unfinished.end(),
                                [node](const auto& other) { return other.second == node; });
  if (all) gathering.holdings[node].progress = gathering.finished;
}

void leave_gathered(Self self, const Error& why) { end(self, {kResumable, to_string(why)}); }

void gathered_lost(Self self, NodeId node) {
  auto& state = self->state;
  state.resources->logger.warning(describe(state.job.members, node) +
                                  " was lost while its head was replaced");
  send_to_node(self, node, stop_atom::value, "it was silent for too long", std::int32_t{1});
  state.job.members.clear(node);
  state.links[node.index()] = {};
  state.gathering->holdings.erase(node);
  state.gathering->unreached.erase(node);
  std::erase_if(state.gathering->unfinished,
                [node](const auto& device) { return device.second == node; });
}

void gathered_failed(Self self, NodeId node, const Error& error) {
  // What peers of a step that nobody decides miss in each other means nothing.
  if (error.code == Errc::transport_failed) return;
  auto& holdings = self->state.gathering->holdings;
  const auto known = holdings.find(node);
  if (error.code == Errc::cancelled && known != holdings.end()) {  // A signal: `let_leave`.
    known->second.leaves = {{error.message, true}};
    return;
  }
  send_to_node(self, node, stop_atom::value, error.message, std::int32_t{1});
  if (self->state.job.members.is_there(node)) gathered_lost(self, node);
}

void watch_gathering(Self self) {
  auto& state = self->state;
  Gathering& gathering = *state.gathering;
  const bool is_late = now(self) > gathering.until;
  if (gathering.is_decided) {
    if (!gathering.unfinished.empty() && !is_late) return;
    std::set<NodeId> late;
    for (const auto& [device, node] : gathering.unfinished) late.insert(node);
    gathering.unfinished.clear();
    return decide(self, late);
  }
  if (!is_late && !is_complete(gathering, now(self))) return;
  gathering.is_decided = true;
  decide(self, {});
}

}  // namespace troupe::actors
