#include "scheduler/iteration/sum_actions.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

#include "runtime/vocabulary/gradient_sum.hpp"

namespace troupe::scheduler {

namespace {

bool makes_gradients(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::backward_input ||
         kind == ActionKind::backward_weight;
}

/// Where in a device's list the gradients of a group are complete: behind the last backward of the
/// stages that use it, and behind what that backward sends, which others wait for.
std::size_t place_of_gradients(const ParameterGroup& group, const std::vector<std::size_t>& uses,
                               const std::vector<Action>& list) {
  const auto uses_group = [&](StageId stage) {
    return std::any_of(uses.begin(), uses.end(),
                       [&](std::size_t use) { return group.uses[use].stage == stage; });
  };
  std::size_t place = list.size();
  while (place > 0 && !(makes_gradients(list[place - 1].kind) && uses_group(list[place - 1].stage)))
    --place;
  if (place == 0) return list.size();
  while (place < list.size() && list[place].kind == ActionKind::send_gradient) ++place;
  return place;
}

/// Gradients leave as soon as they are complete, beside the backwards that are left. Sums wait for
/// others, so they come last, where no compute stands behind them, in the order of `kSumActions`.
class SumActions {
 public:
  SumActions(const ParallelPlan& plan, std::vector<std::vector<Action>>& actions)
      : plan_(plan), actions_(actions), early_(actions.size()), sent_(actions.size()) {
    last_.fill(std::vector<std::vector<Action>>(actions.size()));
  }

  void append() {
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      const GroupId id{g};
      // Rows of one grid may share a list, in which an action stands once for all of them.
      for (const SumRole& role : plan_sum(plan_, id).roles)
        for (const DeviceId lead : plan_.leads_of(role.ranks)) add(id, role, lead.index());
    }
    enter_calls();
    for (std::size_t d = 0; d < actions_.size(); ++d) merge(d);
  }

 private:
  void add(GroupId group, const SumRole& role, std::size_t d) {
    Action action;
    action.group = group;
    if (!role.uses.empty())
      action.stage = plan_.groups[group.index()].uses[role.uses.front()].stage;
    for (std::size_t k = 1; k < kSumActions.size(); ++k) {
      std::vector<Action>& list = last_[k - 1][d];
      action.kind = kSumActions[k];
      if (role.acts(action.kind) && (list.empty() || list.back().group != group))
        list.push_back(action);
    }
    if (!role.sends || sent_[d] == group) return;
    sent_[d] = group;
    action.kind = ActionKind::reduce_send;
    const ParameterGroup& all = plan_.groups[group.index()];
    // Who is on standby enters behind all of its compute: its watchdog would count the step, and
    // rows would queue behind a call that waits for them. No call is under way before, so the
    // others, whose rows it needs, enter no sooner.
    const std::size_t end = actions_[d].size();
    const bool is_call = is_by_nccl(all.order);
    const std::size_t place =
        is_call && all.standbys > 0 ? end : place_of_gradients(all, role.uses, actions_[d]);
    if (is_call)
      calls_.push_back({action, d, place, end - place});
    else
      early_[d].emplace(place, action);
  }

  /// In one order everywhere, so that no two devices wait for each other in two calls: calls for
  /// which the last holder has the most left to do come first.
  void enter_calls() {
    constexpr auto kAll = std::numeric_limits<std::size_t>::max();
    std::vector<std::size_t> left(plan_.groups.size(), kAll);
    for (const Call& call : calls_) {
      std::size_t& least = left[call.action.group.index()];
      least = std::min(least, call.left);
    }
    std::stable_sort(calls_.begin(), calls_.end(), [&](const Call& one, const Call& other) {
      const std::size_t a = one.action.group.index(), b = other.action.group.index();
      return left[a] != left[b] ? left[a] > left[b] : a < b;
    });
    std::vector<std::size_t> latest(actions_.size());
    for (const Call& call : calls_) {
      latest[call.device] = std::max(latest[call.device], call.place);
      early_[call.device].emplace(latest[call.device], call.action);
    }
  }

  void merge(std::size_t d) {
    std::vector<Action> list;
    auto next = early_[d].begin();
    for (std::size_t i = 0; i <= actions_[d].size(); ++i) {
      for (; next != early_[d].end() && next->first == i; ++next) list.push_back(next->second);
      if (i < actions_[d].size()) list.push_back(actions_[d][i]);
    }
    for (const auto& lists : last_) list.insert(list.end(), lists[d].begin(), lists[d].end());
    actions_[d] = std::move(list);
  }

  /// A holder's part in a call to NCCL.
  struct Call {
    Action action;
    std::size_t device = 0;
    std::size_t place = 0;  ///< In its list: not before.
    std::size_t left = 0;   ///< So much of the list is behind it.
  };

  const ParallelPlan& plan_;
  std::vector<std::vector<Action>>& actions_;
  std::vector<std::multimap<std::size_t, Action>> early_;
  /// By kind of action, those that wait for others: lists per device.
  std::array<std::vector<std::vector<Action>>, kSumActions.size() - 1> last_;
  std::vector<GroupId> sent_;  // Per device: the last group whose gradients its list sends.
  std::vector<Call> calls_;
};

}  // namespace

void append_sums(const ParallelPlan& plan, std::vector<std::vector<Action>>& actions) {
  SumActions(plan, actions).append();
}

}  // namespace troupe::scheduler
