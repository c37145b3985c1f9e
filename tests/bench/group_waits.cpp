#include "tests/bench/group_waits.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace troupe::bench {

namespace {

// The llm's forwards, its backwards, the encoders' backwards.
constexpr std::size_t kLaterPhases = 3;

/// Encoders' forwards are 0; what has no stage is behind all phases.
std::size_t phase_of(const ParallelPlan& plan, const Action& action) {
  if (!action.stage.valid()) return kLaterPhases + 1;
  const bool llm = plan.is_llm(action.stage);
  switch (action.kind) {
    case ActionKind::forward:
    case ActionKind::send:
    case ActionKind::receive: return llm ? 1 : 0;
    default: return llm ? 2 : 3;
  }
}

/// The actions by which a device waits before each later phase.
using Waits = std::array<std::vector<Action>, kLaterPhases>;

class GroupWaits {
 public:
  GroupWaits(const ParallelPlan& plan, IterationPlan& iteration)
      : plan_(plan), iteration_(iteration), stages_(plan.devices.size()), waits_(stages_.size()) {
    for (std::size_t s = 0; s < plan.stages.size(); ++s)
      stages_[plan.stages[s].devices.front().index()] = StageId{s};
  }

  /// Devices from `first` to before `last`.
  void join(std::size_t first, std::size_t last) {
    for (std::size_t phase = 0; phase < kLaterPhases; ++phase) {
      for (std::size_t d = first + 1; d < last; ++d) signal(d, first, phase);
      for (std::size_t d = first + 1; d < last; ++d) signal(first, d, phase);
    }
  }

  void insert() {
    for (std::size_t d = 0; d < waits_.size(); ++d) {
      std::vector<Action> list;
      std::size_t phase = 0;
      for (const Action& action : iteration_.actions[d]) {
        for (; phase < std::min(phase_of(plan_, action), kLaterPhases); ++phase)
          list.insert(list.end(), waits_[d][phase].begin(), waits_[d][phase].end());
        list.push_back(action);
      }
      iteration_.actions[d] = std::move(list);
    }
  }

 private:
  void signal(std::size_t from, std::size_t to, std::size_t phase) {
    const MessageId id{iteration_.messages.size()};
    Message message;
    message.source = {stages_[from], MicrobatchId{0}, PartId{0}};
    message.destination = {stages_[to], MicrobatchId{0}, PartId{0}};
    iteration_.messages.push_back(std::move(message));
    Action action;
    action.message = id;
    action.kind = ActionKind::send;
    action.stage = stages_[from];
    waits_[from][phase].push_back(action);
    action.kind = ActionKind::receive;
    action.stage = stages_[to];
    waits_[to][phase].push_back(action);
  }

  const ParallelPlan& plan_;
  IterationPlan& iteration_;
  std::vector<StageId> stages_;  ///< Of each device one that speaks for it.
  std::vector<Waits> waits_;
};

}  // namespace

void wait_in_groups(const ParallelPlan& plan, std::size_t group_size, IterationPlan& iteration) {
  GroupWaits waits(plan, iteration);
  const std::size_t count = plan.devices.size();
  for (std::size_t first = 0; first < count; first += group_size)
    waits.join(first, std::min(first + group_size, count));
  waits.insert();
}

}  // namespace troupe::bench
