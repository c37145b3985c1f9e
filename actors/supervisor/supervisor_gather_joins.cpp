#include "actors/supervisor/supervisor_gather_joins.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actors/link/refusal.hpp"
#include "actors/supervisor/gathered.hpp"
#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "engine/setup/plugin_identity.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = JobPhase;

caf::error refuse(Self self, const NodeHello& hello, const std::string& why) {
  self->state.resources->logger.warning("refused " + hello.host + " (pid " +
                                        std::to_string(hello.pid) + "): " + why);
  return refuse_with({Errc::cancelled, why, {}, "start it again"});
}

/// What it holds comes too late, and is of no use: it begins anew, and joins like others.
caf::error send_anew(Self self, const NodeHello& hello, const std::string& why) {
  self->state.resources->logger.warning(hello.host + " (pid " + std::to_string(hello.pid) +
                                        ") begins anew: " + why);
  return send_anew_with(why);
}

/// Waits for another head: looks on, and comes by here again.
caf::error turn_away(Self self, const NodeHello& hello, const std::string& why) {
  const std::string who = hello.host + " (pid " + std::to_string(hello.pid) + ")";
  if (self->state.turned_away.insert(who).second)
    self->state.resources->logger.warning("turned away " + who + ": " + why);
  return refuse_with({Errc::cancelled, why, {}, {}});
}

/// Its state would be lost to a job that goes on without it.
Error other_build(const NodeHello& hello, const std::string& build) {
  return {Errc::invalid_argument,
          "nodes of this run wait for their head with the state of step " +
              std::to_string(hello.holding.front().progress.step) + ", and are build " +
              hello.build + " of troupe; this is " + build,
          hello.host,
          "start that build, or wait until the nodes have saved and ended "
          "(cluster.head_timeout_s); --fresh gives the state up"};
}

/// The same where its plug-ins are others; a head that only saves what nodes hold runs none of
/// them.
Status same_code(const HeadResources& head, const NodeHello& hello) {
  if (head.gather && head.gather->ends) return Done{};
  const NodeHolding& holding = hello.holding.front();
  auto same = engine::same_plugins(head.plugins, holding.ready.plugins,
                                   hello.host + " (pid " + std::to_string(hello.pid) + ")");
  if (same.ok()) return same;
  return Error{Errc::invalid_argument,
               "nodes of this run wait for their head with the state of step " +
                   std::to_string(holding.progress.step) + ", and " + same.error().message,
               same.error().where,
               "put that build back, or wait until the nodes have saved and ended "
               "(cluster.head_timeout_s); --fresh gives the state up"};
}

/// It comes once it has finished a step that was decided. While it says so it is waited for, so
/// long as nodes have for that.
caf::error wait_for(Self self, const NodeHello& hello) {
  auto& state = self->state;
  Gathering& gathering = *state.gathering;
  const NodeHolding& holding = hello.holding.front();
  const std::string step = "step " + std::to_string(holding.verdicts.back().note.step);
  if (gathering.finishing.insert(holding.ready.node).second)
    state.resources->logger.info(hello.host + " (pid " + std::to_string(hello.pid) +
                                 ") comes as node " + std::to_string(holding.ready.node.value) +
                                 " once it has finished " + step);
  const double window_s = state.resources->gather->window_s;
  const double longest_s = window_s + state.resources->setup.job.cluster.join_timeout_s;
  const Time until = std::min(now(self) + seconds(window_s), gathering.begun + seconds(longest_s));
  if (!gathering.is_decided) gathering.until = std::max(gathering.until, until);
  return refuse_with({Errc::cancelled, "it has not finished " + step, {}, {}});
}

/// Whether it has come before, and its connection broke since.
bool is_same_process(const Member& node, const NodeHello& hello) {
  return node.phase == Member::Phase::joined && node.host == hello.host && node.pid == hello.pid;
}

}  // namespace

caf::result<NodeWelcome> join_gathered(Self self, const NodeHello& hello) {
  auto& state = self->state;
  // It may hold state, and a refusal would end it.
  if (!hello.is_whole) return turn_away(self, hello, "it is another build of troupe");
  if (hello.holding.empty()) {
    const auto sender = self->current_sender();  // The promise takes it away.
    auto promise = self->make_response_promise<NodeWelcome>();
    state.gathering->later.push_back({promise, hello, sender});
    return promise;
  }
  if (hello.run_id != state.resources->run_id)
    return turn_away(self, hello, "it waits for the head of another run");
  if (hello.incarnation > state.resources->incarnation)  // It was only stopped, and ends soon.
    return turn_away(self, hello, "it obeyed a newer head of this run");
  if (hello.build != state.resources->build && state.job.phase() == Phase::gathering) {
    fail(self, other_build(hello, state.resources->build));
    return turn_away(self, hello, "it is another build of troupe");
  }
  if (auto same = same_code(*state.resources, hello);
      !same.ok() && state.job.phase() == Phase::gathering) {
    fail(self, same.error());
    return turn_away(self, hello, "it has another build of a plug-in");
  }
  if (state.job.phase() != Phase::gathering)
    return send_anew(
        self, hello,
        "the job goes on without it since it lost its head, and what it holds, of step " +
            std::to_string(hello.holding.front().progress.step) +
            ", comes too late; it joins again like a new node");
  const NodeHolding& holding = hello.holding.front();
  if (is_finishing(holding)) return wait_for(self, hello);
  const NodeId id = holding.ready.node;
  const bool has_place = state.job.members.has(id);
  if (has_place && is_same_process(state.job.members[id], hello))
    return turn_away(self, hello, "the end of its last connection is not noticed yet");
  if (!has_place || state.job.members.is_there(id))
    return refuse(self, hello, "there is no place for node " + std::to_string(id.value));
  state.job.members.join(id, hello.host, hello.pid, now(self));
  state.links[id.index()] = {self->current_sender(), {}, {}};
  state.links[id.index()].is_heads_own = hello.is_heads_own;
  state.gathering->last_join = now(self);
  self->monitor(state.links[id.index()].handle);
  state.gathering->holdings[id] = holding;
  state.resources->logger.info(describe(state.job.members, id) + " has the state of step " +
                               std::to_string(holding.progress.step));
  return welcome_to(state, id);
}

void dismiss(Self self, NodeId id, const std::string& why) {
  auto& state = self->state;
  state.resources->logger.warning(describe(state.job.members, id) + " cannot go on: " + why);
  send_to_node(self, id, begin_atom::value, "it cannot go on: " + why);
  state.job.members.clear(id);
  state.links[id.index()] = {};
  state.gathering->holdings.erase(id);
}

void answer_later_ones(Self self, std::vector<Latecomer> later) {
  for (Latecomer& one : later) {
    auto answer = take_in(self, one.hello, one.sender);
    if (auto* welcome = std::get_if<NodeWelcome>(&answer))
      one.promise.deliver(std::move(*welcome));
    else
      one.promise.deliver(std::get<caf::error>(answer));
  }
}

}  // namespace troupe::actors
