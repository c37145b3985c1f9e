#include "scheduler/expected_actions.hpp"

#include <algorithm>
#include <cstddef>
#include <set>

#include "runtime/vocabulary/gradient_sum.hpp"

namespace troupe::scheduler {

namespace {

/// Collects actions and waits; waits become indices at the end.
class Collector {
 public:
  Collector(const ParallelPlan& plan, const IterationPlan& iteration, const RowFlow& flow,
            const SplitParts& split)
      : plan_(plan),
        iteration_(iteration),
        flow_(flow),
        split_(split),
        backwards_of_(plan.stages.size()) {
    for (const auto& message : iteration.messages)
      if (message.has_backward) gradient_to_.push_back(message.destination);
    std::sort(gradient_to_.begin(), gradient_to_.end());
  }

  ExpectedActions collect() {
    add_compute();
    add_transfers();
    add_tail();
    ExpectedActions expected{std::move(actions_), {}};
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
    return expected;
  }

 private:
  SitedAction sited(Action action) const {
    return {action, plan_.at(action.stage).devices.front().value};
  }
  SitedAction compute(ActionKind kind, const MessageEnd& end) const {
    Action action;
    action.kind = kind;
    action.stage = end.stage;
    action.microbatch = end.microbatch;
    action.part = end.part;
    return sited(action);
  }
  SitedAction transfer(ActionKind kind, StageId stage, std::size_t message) const {
    Action action;
    action.kind = kind;
    action.stage = stage;
    action.message = MessageId{message};
    return sited(action);
  }
  /// `stage`: the device's first use of the group; none: it is on standby for it.
  static SitedAction grouped(ActionKind kind, DeviceId device, StageId stage, std::size_t group) {
    Action action;
    action.kind = kind;
    action.stage = stage;
    action.group = GroupId{group};
    return {action, device.value};
  }
  bool is_split(const MessageEnd& end) const {
    return std::binary_search(split_.begin(), split_.end(), end);
  }
  /// The action of a part that takes and makes gradients.
  SitedAction gradient_action(const MessageEnd& end) const {
    return compute(is_split(end) ? ActionKind::backward_input : ActionKind::backward, end);
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
    const auto forward = compute(ActionKind::forward, end);
    actions_.push_back(forward);
    // Loss and parameters: what has no backward must still come before the step ends.
    computes_.push_back(forward);
    if (!trains && !std::binary_search(gradient_to_.begin(), gradient_to_.end(), end)) return;
    auto last = gradient_action(end);
    actions_.push_back(last);
    need(last, forward);
    if (is_split(end) && trains) {
      const auto weight = compute(ActionKind::backward_weight, end);
      actions_.push_back(weight);
      need(weight, last);
      last = weight;
    }
    backwards_of_[end.stage.index()].push_back(last);
    computes_.push_back(last);
  }

  void add_transfers() {
    for (std::size_t m = 0; m < iteration_.messages.size(); ++m) {
      const auto& message = iteration_.messages[m];
      const StageId from = message.source.stage;
      const StageId to = message.destination.stage;
      add_transfer(transfer(ActionKind::send, from, m), transfer(ActionKind::receive, to, m),
                   compute(ActionKind::forward, message.source),
                   compute(ActionKind::forward, message.destination));
      if (!message.has_backward) continue;
      add_transfer(transfer(ActionKind::send_gradient, to, m),
                   transfer(ActionKind::receive_gradient, from, m),
                   gradient_action(message.destination), gradient_action(message.source));
    }
  }

  void add_transfer(const SitedAction& send, const SitedAction& receive, const SitedAction& maker,
                    const SitedAction& user) {
    actions_.push_back(send);
    actions_.push_back(receive);
    need(send, maker);
    need(receive, send);
    need(user, receive);
  }

  void add_tail() {
    std::vector<SitedAction> commits;
    for (std::size_t d = 0; d < plan_.devices.size(); ++d) {
      Action commit;
      commit.kind = ActionKind::commit;
      commits.push_back({commit, static_cast<std::int32_t>(d)});
      actions_.push_back(commits.back());
    }
    for (const auto& done : computes_) need(commits[static_cast<std::size_t>(done.device)], done);
    Action step;
    step.kind = ActionKind::optimizer_step;
    std::set<SitedAction> steps;
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      add_sum(g, commits);
      const ParameterGroup& group = plan_.groups[g];
      for (const auto& use : group.uses) {
        step.stage = use.stage;
        steps.insert(sited(step));
      }
      step.stage = StageId{};
      for (std::size_t h = 0; h < group.holders.size(); ++h)
        if (!uses_here(group, group.holders[h])) steps.insert({step, group.holders[h].value});
    }
    for (const SitedAction& update : steps) {
      actions_.push_back(update);
      need(update, commits[static_cast<std::size_t>(update.device)]);
    }
  }

  bool uses_here(const ParameterGroup& group, DeviceId device) const {
    return std::any_of(group.uses.begin(), group.uses.end(), [&](const ParameterUse& use) {
      return plan_.at(use.stage).devices.front() == device;
    });
  }

  /// A group's chunks: its device's own gradients first, then those of all others, then back.
  void add_sum(std::size_t g, const std::vector<SitedAction>& commits) {
    const ParameterGroup& group = plan_.groups[g];
    std::vector<SitedAction> gives, adds, takes;
    for (const SumRole& role : plan_sum(plan_, GroupId{g}).roles) {
      const DeviceId device = group.holders[static_cast<std::size_t>(role.place)];
      const StageId stage = role.uses.empty() ? StageId{} : group.uses[role.uses.front()].stage;
      const auto on_device = [&](ActionKind kind) {
        const auto action = grouped(kind, device, stage, g);
        actions_.push_back(action);
        return action;
      };
      if (role.sends) gives.push_back(on_device(ActionKind::reduce_send));
      if (role.adds > 0) adds.push_back(on_device(ActionKind::reduce));
      if (role.takes) takes.push_back(on_device(ActionKind::reduce_receive));
      for (const std::size_t use : role.uses)
        for (const auto& backward : backwards_of_[group.uses[use].stage.index()]) {
          if (role.sends) need(gives.back(), backward);
          if (role.adds > 0) need(adds.back(), backward);
        }
    }
    for (const auto& add : adds) {
      for (const auto& give : gives) need(add, give);
      for (const auto& take : takes)
        if (take.device != add.device) need(take, add);
      need(commits[static_cast<std::size_t>(add.device)], add);
    }
    for (const auto& take : takes) need(commits[static_cast<std::size_t>(take.device)], take);
  }

  const ParallelPlan& plan_;
  const IterationPlan& iteration_;
  const RowFlow& flow_;
  const SplitParts& split_;
  std::vector<MessageEnd> gradient_to_;                 // Ends that get rows whose gradient is due.
  std::vector<std::vector<SitedAction>> backwards_of_;  // Per stage: last backward of each part.
  std::vector<SitedAction> computes_;                   // Of all stages; `commit` ends them.
  std::vector<SitedAction> actions_;
  std::vector<std::pair<SitedAction, SitedAction>> needs_;
};

}  // namespace

ExpectedActions expected_actions(const ParallelPlan& plan, const IterationPlan& iteration,
                                 const RowFlow& flow, const SplitParts& split) {
  return Collector(plan, iteration, flow, split).collect();
}

}  // namespace troupe::scheduler
