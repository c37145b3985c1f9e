#include "scheduler/iteration/expected_actions.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>

#include "runtime/vocabulary/gradient_sum.hpp"
#include "runtime/vocabulary/host_state.hpp"

namespace troupe::scheduler {

namespace {

/// Collects actions and waits; waits become indices at the end.
class Collector {
 public:
  Collector(const ParallelPlan& plan, const IterationPlan& iteration, const RowFlow& flow,
            const SplitParts& split, const OffloadedParts& offloaded)
      : plan_(plan),
        iteration_(iteration),
        flow_(flow),
        split_(split),
        offloaded_(offloaded),
        backwards_of_(plan.stages.size()) {
    for (std::size_t s = 0; s < plan.stages.size(); ++s)
      leads_.push_back(plan.leads_of(StageId{s}));
    for (const auto& message : iteration.messages)
      if (message.has_backward) gradient_to_.push_back(message.destination);
    std::sort(gradient_to_.begin(), gradient_to_.end());
  }

  ExpectedActions collect() {
    add_compute();
    add_transfers();
    add_deliveries();
    add_tail();
    ExpectedActions expected{std::move(actions_), {}, {}};
    auto& actions = expected.actions;
    std::sort(actions.begin(), actions.end());
    const auto index_of = [&](const SitedAction& action) {
      const auto found = std::lower_bound(actions.begin(), actions.end(), action);
      return found != actions.end() && *found == action
                 ? static_cast<std::int32_t>(found - actions.begin())
                 : -1;
    };
    for (const auto& [action, need] : needs_) {
      const auto a = index_of(action);
      const auto b = index_of(need);
      // A message may promise a gradient that no backward makes; the message check reports it.
      if (a >= 0 && b >= 0) expected.needs.emplace_back(a, b);
    }
    for (const auto& copies : rendezvous_) {
      auto& meeting = expected.rendezvous.emplace_back();
      for (const auto& copy : copies) meeting.push_back(index_of(copy));
    }
    return expected;
  }

 private:
  const std::vector<DeviceId>& leads(StageId stage) const { return leads_[stage.index()]; }
  static SitedAction compute(ActionKind kind, const MessageEnd& end, DeviceId lead) {
    Action action;
    action.kind = kind;
    action.stage = end.stage;
    action.microbatch = end.microbatch;
    action.part = end.part;
    return {action, lead.value};
  }
  static SitedAction transfer(ActionKind kind, StageId stage, std::size_t message, DeviceId lead) {
    Action action;
    action.kind = kind;
    action.stage = stage;
    action.message = MessageId{message};
    return {action, lead.value};
  }
  /// `stage`: the device's first use of the group; none: it is on standby for it.
  static SitedAction grouped(ActionKind kind, DeviceId device, StageId stage, std::size_t group) {
    Action action;
    action.kind = kind;
    action.stage = stage;
    action.group = GroupId{group};
    return {action, device.value};
  }
  static SitedAction commit_of(std::int32_t device) {
    Action commit;
    commit.kind = ActionKind::commit;
    return {commit, device};
  }
  bool is_split(const MessageEnd& end) const {
    return std::binary_search(split_.begin(), split_.end(), end);
  }
  /// What takes and makes the gradients of a part.
  ActionKind gradient_kind(const MessageEnd& end) const {
    return is_split(end) ? ActionKind::backward_input : ActionKind::backward;
  }
  void need(const SitedAction& action, const SitedAction& what) {
    needs_.emplace_back(action, what);
  }

  void add_compute() {
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      const StageId stage{s};
      const MicrobatchList& list = iteration_.microbatches[plan_.at(stage).replica.index()];
      for (std::size_t m = 0; m < list.size(); ++m)
        for (std::size_t q = 0; q < list[m].parts.size(); ++q)
          add_part({stage, MicrobatchId{m}, PartId{q}}, list[m].parts[q]);
    }
  }

  void add_part(const MessageEnd& end, const Part& part) {
    bool works = false;
    bool trains = false;
    for (const auto& run : plan_.at(end.stage).runs)
      for (const auto sample : part.samples)
        if (flow_.output(run.module, sample) > 0) {
          works = true;
          trains |= flow_.trains(run);
        }
    if (!works) return;
    const bool has_backward =
        trains || std::binary_search(gradient_to_.begin(), gradient_to_.end(), end);
    std::vector<ActionKind> kinds{ActionKind::forward};
    if (has_backward) kinds.push_back(gradient_kind(end));
    if (is_split(end) && trains) kinds.push_back(ActionKind::backward_weight);
    if (has_backward) add_offload(end);
    for (const DeviceId lead : leads(end.stage)) {
      for (std::size_t k = 0; k < kinds.size(); ++k) {
        actions_.push_back(compute(kinds[k], end, lead));
        if (k > 0) need(actions_.back(), compute(kinds[k - 1], end, lead));
      }
      // Loss and parameters: what has no backward must still come before the step ends.
      computes_.push_back(compute(ActionKind::forward, end, lead));
      if (!has_backward) continue;
      computes_.push_back(actions_.back());
      backwards_of_[end.stage.index()].push_back(actions_.back());
    }
    if (leads(end.stage).size() == 1) return;
    for (const ActionKind kind : kinds) {
      auto& copies = rendezvous_.emplace_back();
      for (const DeviceId lead : leads(end.stage)) copies.push_back(compute(kind, end, lead));
    }
  }

  /// No rendezvous: each rank of a grid moves what it keeps by itself.
  void add_offload(const MessageEnd& end) {
    if (plan_.is_llm(end.stage) || !std::binary_search(offloaded_.begin(), offloaded_.end(), end))
      return;
    for (const DeviceId lead : leads(end.stage)) {
      const SitedAction away = compute(ActionKind::offload, end, lead);
      const SitedAction back = compute(ActionKind::fetch, end, lead);
      actions_.push_back(away);
      actions_.push_back(back);
      need(away, compute(ActionKind::forward, end, lead));
      need(back, away);
      need(compute(gradient_kind(end), end, lead), back);
    }
  }

  void add_transfers() {
    for (std::size_t m = 0; m < iteration_.messages.size(); ++m) {
      const auto& message = iteration_.messages[m];
      add_transfer(m, ActionKind::send, message.source, ActionKind::forward, ActionKind::receive,
                   message.destination, ActionKind::forward, ActionKind::relay);
      if (!message.has_backward) continue;
      add_transfer(m, ActionKind::send_gradient, message.destination,
                   gradient_kind(message.destination), ActionKind::receive_gradient, message.source,
                   gradient_kind(message.source), ActionKind::relay_gradient);
    }
  }

  /// What `makes` at `from` is sent, then received where `uses` at `to` needs it; in between a
  /// device may hand it on.
  void add_transfer(std::size_t message, ActionKind send, const MessageEnd& from, ActionKind makes,
                    ActionKind receive, const MessageEnd& to, ActionKind uses, ActionKind relays) {
    std::vector<SitedAction> sends;
    for (const DeviceId lead : leads(from.stage)) {
      sends.push_back(transfer(send, from.stage, message, lead));
      need(sends.back(), compute(makes, from, lead));
    }
    std::vector<SitedAction> givers = sends;
    if (const DeviceId relay = iteration_.messages[message].relay; relay.valid()) {
      givers = {transfer(relays, {}, message, plan_.lead_of(relay))};
      actions_.push_back(givers.front());
      for (const auto& sent : sends) need(givers.front(), sent);
    }
    for (const DeviceId lead : leads(to.stage)) {
      const SitedAction taken = transfer(receive, to.stage, message, lead);
      actions_.push_back(taken);
      for (const auto& given : givers) need(taken, given);
      need(compute(uses, to, lead), taken);
    }
    actions_.insert(actions_.end(), sends.begin(), sends.end());
  }

  /// What one list sends, and all lists of the stage that reads it wait for.
  void add_deliveries() {
    for (std::size_t i = 0; i < iteration_.deliveries.size(); ++i) {
      const Delivery& delivery = iteration_.deliveries[i];
      Action action;
      action.kind = ActionKind::send_content;
      action.delivery = DeliveryId{i};
      const SitedAction sent{action, delivery.from.value};
      actions_.push_back(sent);
      action.kind = ActionKind::receive_content;
      action.stage = delivery.destination.stage;
      for (const DeviceId lead : leads(action.stage)) {
        const SitedAction taken{action, lead.value};
        actions_.push_back(taken);
        need(taken, sent);
        need(compute(ActionKind::forward, delivery.destination, lead), taken);
      }
    }
  }

  void add_tail() {
    for (std::size_t d = 0; d < plan_.devices.size(); ++d)
      if (plan_.is_lead(DeviceId{d})) actions_.push_back(commit_of(static_cast<std::int32_t>(d)));
    for (const auto& done : computes_) need(commit_of(done.device), done);
    Action step;
    step.kind = ActionKind::optimizer_step;
    std::set<SitedAction> steps;
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      add_sum(g);
      if (moments_in_host(plan_, GroupId{g})) {
        add_update_from_host(g);
        continue;
      }
      const ParameterGroup& group = plan_.groups[g];
      for (const auto& use : group.uses) {
        step.stage = use.stage;
        for (const DeviceId lead : leads(use.stage)) steps.insert({step, lead.value});
      }
      step.stage = StageId{};
      for (auto h = static_cast<std::size_t>(group.users()); h < group.holders.size(); ++h)
        steps.insert({step, group.holders[h].value});
    }
    for (const SitedAction& update : steps) {
      actions_.push_back(update);
      need(update, commit_of(update.device));
    }
  }

  /// Of a group whose moments are in host memory: they come, are updated alone and go back, once on
  /// each device that holds the group.
  void add_update_from_host(std::size_t g) {
    const ParameterGroup& group = plan_.groups[g];
    std::map<std::int32_t, StageId> holders;  // By device: its first use, or none.
    for (const auto& use : group.uses)
      for (const DeviceId lead : leads(use.stage)) holders.emplace(lead.value, use.stage);
    for (auto h = static_cast<std::size_t>(group.users()); h < group.holders.size(); ++h)
      holders.emplace(group.holders[h].value, StageId{});
    for (const auto& [device, stage] : holders) {
      const DeviceId here{device};
      const SitedAction fetch = grouped(ActionKind::fetch_state, here, stage, g);
      const SitedAction update = grouped(ActionKind::optimizer_step, here, stage, g);
      const SitedAction offload = grouped(ActionKind::offload_state, here, stage, g);
      actions_.insert(actions_.end(), {fetch, update, offload});
      need(fetch, commit_of(device));
      need(update, commit_of(device));
      need(update, fetch);
      need(offload, update);
    }
  }

  /// A group's chunks: each action waits for who sends it some, and who adds for its own gradients.
  void add_sum(std::size_t g) {
    const ParameterGroup& group = plan_.groups[g];
    const GroupSum sum = plan_sum(plan_, GroupId{g});
    std::vector<std::vector<SitedAction>> copies;  // Per role: an action in each of its lists.
    for (const SumRole& role : sum.roles) {
      const StageId stage = role.uses.empty() ? StageId{} : group.uses[role.uses.front()].stage;
      auto& own = copies.emplace_back();
      for (const DeviceId lead : plan_.leads_of(role.ranks))
        own.push_back(grouped(ActionKind::reduce, lead, stage, g));
    }
    std::set<SitedAction> acts;  // Rows of one grid may share a list.
    std::vector<std::pair<SitedAction, SitedAction>> waits;
    for (const SumRole& role : sum.roles)
      for (const ActionKind kind : kSumActions) {
        if (!role.acts(kind)) continue;
        const auto transfers = sum.taken(role.place, kind);
        for (SitedAction act : copies[static_cast<std::size_t>(role.place)]) {
          act.action.kind = kind;
          acts.insert(act);
          add_own_waits(act, role, sum.is_call, group, waits);
          for (const SumTransfer& from : transfers)
            for (SitedAction sent : copies[static_cast<std::size_t>(from.holder)]) {
              sent.action.kind = from.kind;
              waits.emplace_back(act, sent);
            }
        }
      }
    // Two holders exchange several chunks in a tree, and rows of grids those of all their ranks.
    if (!plan_.leads.empty() || group.order == SumOrder::tree_by_node) {
      std::sort(waits.begin(), waits.end());
      waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    }
    actions_.insert(actions_.end(), acts.begin(), acts.end());
    needs_.insert(needs_.end(), waits.begin(), waits.end());
    for (const auto& act : acts)
      if (act.action.kind != ActionKind::reduce_send) need(commit_of(act.device), act);
  }

  /// What an action of a sum needs of its own list: gradients, and its uses added up, which the
  /// first action that adds or sends does.
  void add_own_waits(const SitedAction& action, const SumRole& role, bool is_call,
                     const ParameterGroup& group,
                     std::vector<std::pair<SitedAction, SitedAction>>& waits) const {
    const ActionKind kind = action.action.kind;
    // The end of a call needs its own part of it; a sum of messages comes from others alone.
    if (kind == ActionKind::reduce_relay || (kind == ActionKind::reduce_receive && !is_call))
      return;
    for (const std::size_t use : role.uses)
      for (const auto& backward : backwards_of_[group.uses[use].stage.index()])
        if (backward.device == action.device) waits.emplace_back(action, backward);
    for (const ActionKind before : kSumActions) {
      if (before == kind) return;
      if (!role.acts(before)) continue;
      SitedAction first = action;
      first.action.kind = before;
      waits.emplace_back(action, first);
    }
  }

  const ParallelPlan& plan_;
  const IterationPlan& iteration_;
  const RowFlow& flow_;
  const SplitParts& split_;
  const OffloadedParts& offloaded_;
  std::vector<std::vector<DeviceId>> leads_;            // Per stage.
  std::vector<MessageEnd> gradient_to_;                 // Ends that get rows whose gradient is due.
  std::vector<std::vector<SitedAction>> backwards_of_;  // Per stage: last backward of each part.
  std::vector<SitedAction> computes_;                   // Of all stages; `commit` ends them.
  std::vector<SitedAction> actions_;
  std::vector<std::pair<SitedAction, SitedAction>> needs_;
  std::vector<std::vector<SitedAction>> rendezvous_;
};

}  // namespace

ExpectedActions expected_actions(const ParallelPlan& plan, const IterationPlan& iteration,
                                 const RowFlow& flow, const SplitParts& split,
                                 const OffloadedParts& offloaded) {
  return Collector(plan, iteration, flow, split, offloaded).collect();
}

}  // namespace troupe::scheduler
