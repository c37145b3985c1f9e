#include "tests/actors/fake_actors.hpp"

#include <chrono>
#include <thread>

#include "actors/link/refusal.hpp"

namespace troupe::actors {

NodeActor::behavior_type fake_node(NodeActor::pointer self, NodeSeen* seen) {
  return {
      [seen](apply_atom, const Configuration& x) { seen->configurations.push_back(x); },
      [seen](settle_atom, EpochNumber x) { seen->settled.push_back(x); },
      [seen](const IterationPlan& x) { seen->plans.push_back(x); },
      [seen](const engine::StepVerdict& x) {
        seen->decisions.push_back(x.decision);
        seen->notes.push_back(x.note);
      },
      [seen](const engine::BatchOrder& x) { seen->orders.push_back(x); },
      [seen](collect_atom, Collection x) { seen->collections.push_back(x); },
      [seen](const SaveOrder& x) { seen->saves.push_back(x); },
      [self, seen](stop_atom, const std::string& why, std::int32_t exit_code) {
        seen->stops.push_back(why);
        seen->exit_codes.push_back(exit_code);
        if (!seen->deaf) self->quit();
      },
      [self, seen](stop_atom, const Error& why) {
        seen->refusals.push_back(why);
        if (!seen->deaf) self->quit();
      },
      [self, seen](begin_atom, const std::string& why) {
        seen->restarts.push_back(why);
        if (!seen->deaf) self->quit();
      },
      [](stop_atom, std::int32_t) {},
      [](join_atom, const caf::strong_actor_ptr&) {},
      [seen](alive_atom) { ++seen->alive; },
      [seen](leave_atom, const std::string& why) { seen->leaves.push_back(why); },
      [](tick_atom) {},
      [](const engine::Prepared&) {},
      [](const engine::DeviceReport&) {},
      [](fetched_atom, std::int32_t, EpochNumber) {},
      [](applied_atom, std::int32_t, EpochNumber) {},
      [seen](const engine::BatchReport& x) { seen->reports.push_back(x); },
      [](const Offers&) {},
      [](const SaveReport&) {},
      [](const NodeReady&) {},
      [seen](failed_atom, const Error& x) { seen->failures.push_back(x); },
      [seen](failed_atom, EpochNumber, const Error& x) { seen->failures.push_back(x); },
      [seen](const engine::FailedWork& x) { seen->failures.push_back(x.error); },
      [](lost_atom, NodeId, bool, const std::string&) {},
  };
}

NodeActor::behavior_type joining_node(NodeActor::pointer self, const SupervisorActor& supervisor,
                                      NodeHello hello, std::vector<NodeSeen>* seen,
                                      JoinAnswer* answer) {
  self->request(supervisor, caf::infinite, join_atom::value, std::move(hello))
      .then(
          [self, seen, answer](const NodeWelcome& welcome) {
            answer->place = welcome.node;
            self->become(fake_node(self, &seen->at(welcome.node.index())));
          },
          [answer](const caf::error& error) {
            if (auto why = sent_anew_in(error))
              answer->why = {Errc::cancelled, *why, "", "it begins anew"};
            else
              answer->why = refusal_in(error).value_or(Error{Errc::internal, "no answer", {}, {}});
          });
  return fake_node(self, &seen->at(0));  // It hears nothing before its welcome.
}

SupervisorActor::behavior_type fake_supervisor(SupervisorActor::pointer, SupervisorSeen* seen) {
  return {
      [seen](join_atom, const NodeHello& hello) -> caf::result<NodeWelcome> {
        seen->hello_ = hello;
        ++seen->hellos;
        while (seen->holds) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        if (!seen->refusal) return seen->welcome;
        if (seen->sends_anew) return send_anew_with(seen->refusal->message);
        return refuse_with(*seen->refusal);
      },
      [seen](const NodeReady&) { ++seen->readies; },
      [seen](fetched_atom, NodeId, EpochNumber, double ms) {
        seen->connect_ms = ms;
        ++seen->fetched;
      },
      [seen](applied_atom, NodeId, EpochNumber) { ++seen->applied; },
      [seen](const engine::Prepared&) { ++seen->prepared; },
      [seen](const engine::DeviceReport&) { ++seen->finished; },
      [seen](const Offers& x) {
        seen->offered_tensors += x.tensors.size();
        ++seen->offers;
      },
      [seen](failed_atom, NodeId, const Error& x) {
        seen->failures.push_back(x);
        if (seen->on_fault) seen->on_fault(x);
      },
      [seen](const PlannedBatchPtr& x) { seen->batches.push_back(x); },
      [seen](next_atom, EpochNumber epoch, const Error& x) {
        seen->unplanned.push_back(epoch);
        seen->failures.push_back(x);
      },
      [seen](const RefusedBatchPtr& x) { seen->refused.push_back(x); },
      [seen](const TemplateSetPtr& x) { seen->templates.push_back(x); },
      [seen](failed_atom, const Error& x) { seen->failures.push_back(x); },
      [](exited_atom, std::int32_t, const std::string&, std::int32_t) {},
      [seen](NodeId, const engine::FailedWork& x) { seen->failures.push_back(x.error); },
      [](NodeId, const engine::LongWorks&) {},
      [seen](NodeId, const engine::LongWaits& x) {
        for (const engine::SilentPeer& silent : x.silent) seen->silent_peer = silent.peer.value;
        if (x.silent.empty()) seen->silent_peer = -1;
      },
      [](stop_atom, std::int32_t) {},
      [](save_atom) {},
      [](const SaveReport&) {},
      [](const KeptCheckpointPtr&) {},
      [seen](save_atom, std::int64_t number, const LearnedCostsPtr& x) {
        seen->learned[number] = *x;
      },
      [seen](failed_atom, NodeId, EpochNumber, const Error& x) {
        seen->failures.push_back(x);
        if (seen->on_fault) seen->on_fault(x);
      },
      [](failed_atom, EpochNumber, const Error&) {},
      [seen](lost_atom, NodeId reporter, NodeId peer, EpochNumber epoch, const std::string&) {
        seen->ways.emplace_back(reporter, peer);
        seen->missed_in.push_back(epoch);
        ++seen->misses;
      },
      [seen](unreached_atom, NodeId reporter, NodeId peer, EpochNumber epoch, const std::string&) {
        seen->ways.emplace_back(reporter, peer);
        seen->missed_in.push_back(epoch);
        ++seen->unmade;
        ++seen->misses;
      },
      [](control_atom, const ControlRequest&) { return std::string(); },
      [](leave_atom) {},
      [](lost_atom, NodeId, std::int32_t) {},
      [seen](alive_atom, NodeId) { ++seen->alive; },
      [](tick_atom) {},
  };
}

}  // namespace troupe::actors
