#include "scheduler/iteration/parameter_actions.hpp"

#include <cstddef>
#include <map>
#include <utility>

#include "runtime/vocabulary/host_state.hpp"

namespace troupe::scheduler {

namespace {

bool computes(const Action& action) {
  return action.microbatch.valid() && !moves_activations(action.kind);
}

/// Rows that a compute has made, and what it keeps, leave the device.
bool follows_compute(ActionKind kind) {
  return kind == ActionKind::send || kind == ActionKind::send_gradient ||
         kind == ActionKind::offload;
}

/// What a compute needs comes.
bool precedes_compute(ActionKind kind) {
  return kind == ActionKind::receive || kind == ActionKind::receive_gradient ||
         kind == ActionKind::receive_content || kind == ActionKind::fetch;
}

/// Actions of one list that are to go in, by the place of the action that they stand before.
using Moves = std::multimap<std::size_t, Action>;

Action moving(ActionKind kind, StageId stage) {
  Action action;
  action.kind = kind;
  action.stage = stage;
  return action;
}

void find_moves(const ParallelPlan& plan, StageId stage, const std::vector<Action>& list,
                Moves& moves) {
  bool is_here = true;
  std::size_t behind = 0;  // The last compute of the stage.
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!computes(list[i])) continue;
    if (list[i].stage == stage) {
      std::size_t place = i;
      while (place > 0 && list[place - 1].stage == stage && precedes_compute(list[place - 1].kind))
        --place;
      if (!is_here) moves.emplace(place, moving(ActionKind::fetch_parameters, stage));
      is_here = true;
      behind = i + 1;
    } else if (is_here && !parameters_in_host(plan, list[i].stage)) {
      while (behind < i && list[behind].stage == stage && follows_compute(list[behind].kind))
        ++behind;
      moves.emplace(behind, moving(ActionKind::evict_parameters, stage));
      is_here = false;
    }
  }
  if (!is_here) moves.emplace(list.size(), moving(ActionKind::fetch_parameters, stage));
}

std::vector<Action> with_moves(const std::vector<Action>& list, const Moves& moves) {
  std::vector<Action> made;
  auto next = moves.begin();
  for (std::size_t i = 0; i <= list.size(); ++i) {
    for (; next != moves.end() && next->first == i; ++next) made.push_back(next->second);
    if (i < list.size()) made.push_back(list[i]);
  }
  return made;
}

}  // namespace

void add_parameter_moves(const ParallelPlan& plan, std::vector<std::vector<Action>>& actions) {
  std::vector<Moves> moves(actions.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    if (parameters_in_host(plan, StageId{s}))
      for (const DeviceId lead : plan.leads_of(StageId{s}))
        find_moves(plan, StageId{s}, actions[lead.index()], moves[lead.index()]);
  for (std::size_t d = 0; d < actions.size(); ++d)
    if (!moves[d].empty()) actions[d] = with_moves(actions[d], moves[d]);
}

}  // namespace troupe::scheduler
