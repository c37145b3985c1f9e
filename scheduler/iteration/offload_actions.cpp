#include "scheduler/iteration/offload_actions.hpp"

#include <cstddef>
#include <map>
#include <set>

namespace troupe::scheduler {

namespace {

MessageEnd part_of(const Action& action) { return {action.stage, action.microbatch, action.part}; }

/// The first half of a backward, where that is split: what needs what a forward has kept.
bool needs_activations(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::backward_input;
}

/// Parts of encoders whose backward in this list is not the first compute behind their forward.
void find_parts(const ParallelPlan& plan, const std::vector<Action>& list,
                std::set<MessageEnd>& found) {
  std::map<MessageEnd, std::size_t> forwards;  // Computes of the list up to it.
  std::size_t computes = 0;
  for (const Action& action : list) {
    if (!action.microbatch.valid()) continue;
    ++computes;
    if (plan.is_llm(action.stage)) continue;
    if (action.kind == ActionKind::forward) forwards[part_of(action)] = computes;
    if (!needs_activations(action.kind)) continue;
    const auto forward = forwards.find(part_of(action));
    if (forward != forwards.end() && computes > forward->second + 1) found.insert(forward->first);
  }
}

Action moving(ActionKind kind, const Action& compute) {
  Action action = compute;
  action.kind = kind;
  return action;
}

/// The list with the actions of these parts.
std::vector<Action> with_moves(const std::vector<Action>& list, const std::set<MessageEnd>& parts) {
  std::vector<Action> made;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Action& action = list[i];
    const bool moves = action.microbatch.valid() && parts.contains(part_of(action));
    if (moves && needs_activations(action.kind)) {
      std::size_t place = made.size();
      while (place > 0 && made[place - 1].kind == ActionKind::receive_gradient &&
             made[place - 1].stage == action.stage)
        --place;
      made.insert(made.begin() + static_cast<std::ptrdiff_t>(place),
                  moving(ActionKind::fetch, action));
    }
    made.push_back(action);
    if (!moves || action.kind != ActionKind::forward) continue;
    while (i + 1 < list.size() && list[i + 1].kind == ActionKind::send &&
           list[i + 1].stage == action.stage)
      made.push_back(list[++i]);
    made.push_back(moving(ActionKind::offload, action));
  }
  return made;
}

}  // namespace

void add_offloads(const ParallelPlan& plan, std::vector<std::vector<Action>>& actions) {
  std::set<MessageEnd> parts;
  for (const auto& list : actions) find_parts(plan, list, parts);
  if (parts.empty()) return;
  for (auto& list : actions) list = with_moves(list, parts);
}

}  // namespace troupe::scheduler
