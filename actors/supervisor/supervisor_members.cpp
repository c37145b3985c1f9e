#include "actors/supervisor/supervisor_members.hpp"

#include <algorithm>
#include <utility>

#include "actors/node/peers.hpp"
#include "actors/supervisor/supervisor_gather.hpp"
#include "actors/supervisor/supervisor_layout.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_warm_up.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = SupervisorState::Phase;
using NodePhase = NodeEntry::Phase;

/// Exit code of a job whose nodes were told to end, and that has nothing to resume from.
constexpr std::int32_t kTold = 1;

/// Launchers tell the processes of a job one after the other.
constexpr auto kToldTogether = std::chrono::milliseconds(500);

caf::error refuse(Self self, const NodeHello& hello, const std::string& why,
                  const std::string& fix) {
  self->state.resources->logger.warning("refused " + hello.host + " (pid " +
                                        std::to_string(hello.pid) + "): " + why);
  return caf::make_error(caf::sec::runtime_error, why, fix);
}

/// It is here while the job runs: connects the head to it, and marks it for the next step.
Status take_note_of(Self self, const NodeReady& ready) {
  auto& state = self->state;
  auto same = engine::same_data(state.resources->data, ready.data,
                                describe(state.nodes[ready.node.index()], ready.node.index()));
  if (!same.ok()) return same;
  if (auto connected = connect_to(*state.resources->transport, ready); !connected.ok())
    return connected;
  state.newcomers.insert(ready.node);
  return Done{};
}

/// What was wished for cannot be: newcomers wait for work, and who wants to leave stays, or takes
/// the job with it.
void give_up_change(Self self, const Error& error) {
  auto& state = self->state;
  if (!state.newcomers.empty())
    state.resources->logger.warning(who_text({state.newcomers.begin(), state.newcomers.end()}) +
                                    " joined and waits for work: " + error.message);
  state.newcomers.clear();
  const auto leaving = std::exchange(state.leaving, {});
  for (const auto& [node, leave] : leaving) {
    if (leave.by_signal)
      return begin_stop(
          self, leave.why + " at " + describe(state.nodes[node.index()], node.index()), kTold);
    state.resources->logger.warning("node " + std::to_string(node.value) +
                                    " cannot leave: " + to_string(error));
  }
}

}  // namespace

std::set<NodeId> nodes_that_stay(const SupervisorState& state) {
  std::set<NodeId> nodes;
  for (std::size_t i = 0; i < state.nodes.size(); ++i)
    if (takes_part(state.nodes[i]) && !state.leaving.contains(NodeId{i})) nodes.insert(NodeId{i});
  return nodes;
}

caf::result<NodeWelcome> join(Self self, const NodeHello& hello) {
  if (self->state.gathering || !hello.holding.empty()) return join_gathered(self, hello);
  auto answer = take_in(self, hello, self->current_sender());
  if (auto* welcome = std::get_if<NodeWelcome>(&answer)) return std::move(*welcome);
  return std::get<caf::error>(std::move(answer));
}

std::variant<NodeWelcome, caf::error> take_in(Self self, const NodeHello& hello,
                                              const caf::strong_actor_ptr& sender) {
  auto& state = self->state;
  const std::string& build = state.resources->build;
  if (hello.build != build)
    return refuse(self, hello, "it is build " + hello.build + " of troupe, the job runs " + build,
                  "build the same sources on every machine: one commit, and any local edits of it "
                  "(troupe --version)");
  if (state.how.again > 0)  // It comes again, and finds the next head.
    return caf::make_error(caf::sec::runtime_error, std::string("the job begins again"),
                           std::string());
  if (state.phase == Phase::ending || state.phase == Phase::ended || state.stopping)
    return refuse(self, hello,
                  "the job ends: " +
                      (state.stopping ? state.stopping->what
                                      : state.how.message.substr(0, state.how.message.find('\n'))),
                  "start the job again, and then its nodes");
  const std::size_t count = state.nodes.size();
  const std::size_t id = free_place(state, hello.wanted_node);
  if (id == count && hello.wanted_node < 0)
    return refuse(self, hello, "all nodes that are not the head's own have joined already",
                  "raise cluster.nodes where the job is to have more");
  if (id == count)
    return refuse(
        self, hello,
        "node " + std::to_string(hello.wanted_node) + " does not exist or has joined already",
        "take a free id below " + std::to_string(count) +
            ", or leave --node out: any free one is given");
  NodeEntry& node = state.nodes[id];
  node = {};
  node.phase = NodePhase::joined;
  node.host = hello.host;
  node.pid = hello.pid;
  node.handle = sender;
  node.since = now(self);
  self->monitor(node.handle);
  return welcome_to(state, NodeId{id});
}

void node_ready(Self self, const NodeReady& ready) {
  auto& state = self->state;
  NodeEntry& node = state.nodes[ready.node.index()];
  if (node.phase != NodePhase::joined) return;
  if (state.phase == Phase::ending || state.phase == Phase::ended) return;
  if (state.phase != Phase::joining)
    if (auto noted = take_note_of(self, ready); !noted.ok())
      return newcomer_lost(self, ready.node, noted.error().message);
  node.ready = ready;
  node.phase = NodePhase::ready;
  const std::string who = describe(node, ready.node.index());
  state.resources->logger.info(who + " joined");
  node.ready.data = {};  // Its peers need its address alone.
  if (state.phase != Phase::joining) return;
  if (auto same = engine::same_data(state.resources->data, ready.data, who); !same.ok())
    return fail(self, same.error());
  engine::learn_sizes(state.resources->data, ready.data);
  if (std::all_of(state.nodes.begin(), state.nodes.end(), takes_part)) begin_job(self);
}

void newcomer_lost(Self self, NodeId id, const std::string& why) {
  auto& state = self->state;
  state.resources->logger.warning(describe(state.nodes[id.index()], id.index()) +
                                  " did not join: " + why);
  forget_node(self, id, why);
}

void watch_newcomers(Self self) {
  auto& state = self->state;
  if (state.phase == Phase::joining || state.phase == Phase::gathering) return;
  const double timeout_s = state.resources->setup.job.cluster.join_timeout_s;
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    const NodeEntry& node = state.nodes[i];
    if (node.phase == NodePhase::joined && now(self) - node.since > seconds(timeout_s))
      newcomer_lost(self, NodeId{i}, "it was not ready within cluster.join_timeout_s");
  }
}

Status drain(Self self, NodeId id, const std::string& why, bool by_signal) {
  auto& state = self->state;
  if (id.value < 0 || id.index() >= state.nodes.size() || !is_there(state.nodes[id.index()]))
    return Error{Errc::not_found, "there is no node " + std::to_string(id.value) + " in the job",
                 "drain", "troupe ctl RUN status names those there are"};
  const bool runs = state.phase == Phase::applying || state.phase == Phase::training;
  if (!runs || state.stopping || state.last_planned)
    return Error{Errc::unavailable,
                 state.phase == Phase::joining ? "the job has not begun" : "the job ends",
                 "drain",
                 {}};
  if (!takes_part(state.nodes[id.index()])) {
    newcomer_lost(self, id, why);
    return Done{};
  }
  Regrouping trial;
  trial.left = state.placed;
  auto stay = nodes_that_stay(state);
  stay.erase(id);
  if (state.phase == Phase::training)
    if (auto possible = plan_regrouping(state, stay, trial); !possible.ok()) return possible;
  state.leaving.emplace(id, Leaving{why, now(self), by_signal});
  state.resources->logger.info(describe(state.nodes[id.index()], id.index()) +
                               " leaves before the next step: " + why);
  return Done{};
}

void node_told_to_end(Self self, NodeId node, const std::string& why) {
  auto& state = self->state;
  if (state.signals_of_nodes.empty()) self->delayed_send(self, kToldTogether, leave_atom::value);
  state.signals_of_nodes.emplace(node, why);
}

void settle_told_nodes(Self self) {
  auto& state = self->state;
  const auto told = std::exchange(state.signals_of_nodes, {});
  const auto stop_all = [&](NodeId node, const std::string& why) {
    if (!state.stopping)
      begin_stop(self, why + " at " + describe(state.nodes[node.index()], node.index()), kTold);
  };
  const auto present =
      static_cast<std::size_t>(std::count_if(state.nodes.begin(), state.nodes.end(), is_there));
  for (const auto& [node, why] : told) {
    if (!is_there(state.nodes[node.index()])) continue;
    if (2 * told.size() > present) return stop_all(node, why);
    if (state.last_planned || state.phase == Phase::collecting) {
      state.resources->logger.info(describe(state.nodes[node.index()], node.index()) + " was " +
                                   why + "; the job is all but done, and can bear its loss");
      continue;
    }
    if (!drain(self, node, why, true).ok()) return stop_all(node, why);
  }
}

bool members_change(const SupervisorState& state) {
  return !state.newcomers.empty() || !state.leaving.empty();
}

bool change_members(Self self) {
  auto& state = self->state;
  Regrouping regrouping;
  regrouping.left = state.placed;
  regrouping.noticed = now(self);
  regrouping.joined.assign(state.newcomers.begin(), state.newcomers.end());
  for (const auto& [node, leave] : state.leaving) {
    regrouping.drained.push_back(node);
    regrouping.why = "node " + std::to_string(node.value) + " leaves: " + leave.why;
  }
  for (const NodeId node : regrouping.joined)
    if (regrouping.why.empty())
      regrouping.why = describe(state.nodes[node.index()], node.index()) + " joined";
  auto decided = plan_regrouping(state, nodes_that_stay(state), regrouping);
  if (decided.ok()) decided = regrouping.room;
  if (!decided.ok()) {
    give_up_change(self, decided.error());
    return give_up_warm_up(self);
  }
  if (regrouping.plan == trained_layout(state) && regrouping.drained.empty()) {
    give_up_change(self, {Errc::infeasible,
                          "no layout needs it now; it steps in for one that is "
                          "lost",
                          {},
                          {}});
    return give_up_warm_up(self);
  }
  if (warm_up(self, regrouping)) return true;
  regrouping.warmed = state.warming;
  state.regrouping = std::move(regrouping);
  regroup(self);
  return true;
}

}  // namespace troupe::actors
