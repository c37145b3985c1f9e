// The checker against an execution of the lists that shares no code with it.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/vocabulary/gradient_sum.hpp"
#include "runtime/vocabulary/host_state.hpp"
#include "scheduler/check/check_plan.hpp"
#include "tests/scheduler/checked_faults.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using testing::draw;
using testing::key;
using testing::kinds;
using testing::PartKey;
using testing::random_case;
using testing::text_of;

bool makes_gradients(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::backward_input ||
         kind == ActionKind::backward_weight;
}

/// Runs the lists as devices do: next action, wait where the kind waits, else take what is there.
class Execution {
 public:
  Execution(const ParallelPlan& plan, const IterationPlan& iteration)
      : plan_(plan),
        iteration_(iteration),
        next_(iteration.actions.size()),
        peak(plan.stages.size()) {
    for (std::size_t g = 0; g < plan.groups.size(); ++g)
      sums_.push_back(plan_sum(plan, GroupId{g}));
    for (const auto& list : iteration.actions)
      for (const auto& action : list)
        if (action.microbatch.valid()) ++left_[{action.stage.value, action.microbatch.value}];
  }

  /// True if every list runs to its end and nothing is used before it is there.
  bool run() {
    for (bool moved = true; moved && sound_;) {
      moved = false;
      for (std::size_t d = 0; d < next_.size(); ++d)
        while (sound_ && next_[d] < iteration_.actions[d].size() && step(d)) moved = true;
      const auto waits = [&](std::size_t d) {
        return next_[d] < iteration_.actions[d].size() &&
               iteration_.actions[d][next_[d]].kind == ActionKind::commit;
      };
      bool all = !moved && sound_;
      for (std::size_t d = 0; all && d < next_.size(); ++d) all = waits(d);
      if (!all) continue;
      sound_ = evicted_.empty();
      for (std::size_t d = 0; d < next_.size(); ++d) {
        // What is left of the step would come too late for it.
        for (std::size_t i = ++next_[d]; i < iteration_.actions[d].size(); ++i)
          sound_ = sound_ && (iteration_.actions[d][i].kind == ActionKind::optimizer_step ||
                              moves_state(iteration_.actions[d][i].kind));
      }
      committed_ = moved = true;
    }
    for (std::size_t d = 0; d < next_.size(); ++d)
      sound_ = sound_ && next_[d] == iteration_.actions[d].size();
    return sound_;
  }

 private:
  bool step(std::size_t d) {
    const Action& action = iteration_.actions[d][next_[d]];
    if (!ready(d, action)) return false;
    sound_ = sound_ && has_inputs(d, action);
    done(d, action);
    ++next_[d];
    return true;
  }

  /// False: the device waits.
  bool ready(std::size_t d, const Action& action) const {
    switch (action.kind) {
      case ActionKind::receive: return (passes(action) ? passed_ : sent_).contains(of(action));
      case ActionKind::receive_gradient:
        return (passes(action) ? gradient_passed_ : gradient_sent_).contains(of(action));
      case ActionKind::relay: return sent_.contains(of(action));
      case ActionKind::relay_gradient: return gradient_sent_.contains(of(action));
      case ActionKind::receive_content: return content_sent_.contains(action.delivery.value);
      case ActionKind::reduce_partial:
      case ActionKind::reduce:
      case ActionKind::reduce_relay:
      case ActionKind::reduce_receive: return has_parts(d, action);
      case ActionKind::commit: return false;  // All at once, in `run`.
      default: return true;
    }
  }

  static std::int32_t of(const Action& action) { return action.message.value; }
  bool passes(const Action& action) const {
    return iteration_.messages[action.message.index()].relay.valid();
  }

  bool has_inputs(std::size_t d, const Action& action) const {
    const auto all = [&](auto end, bool gradient, const std::set<std::int32_t>& have) {
      for (std::size_t m = 0; m < iteration_.messages.size(); ++m) {
        const auto& message = iteration_.messages[m];
        if (key(message.*end) == key(action) && (!gradient || message.has_backward) &&
            !have.contains(static_cast<std::int32_t>(m)))
          return false;
      }
      return true;
    };
    if (moves_parameters(action.kind))
      return evicted_.contains({d, action.stage}) == (action.kind == ActionKind::fetch_parameters);
    if (action.microbatch.valid() && !moves_activations(action.kind) && !has_room(d, action.stage))
      return false;
    switch (action.kind) {
      case ActionKind::forward:
        return all(&Message::destination, false, received_) && has_content(action);
      case ActionKind::backward:
      case ActionKind::backward_input:
        return forward_.contains(key(action)) && !away_.contains(key(action)) &&
               all(&Message::source, true, gradient_received_);
      case ActionKind::offload:
        return forward_.contains(key(action)) && !backward_.contains(key(action));
      case ActionKind::fetch: return away_.contains(key(action));
      case ActionKind::backward_weight: return backward_.contains(key(action));
      case ActionKind::send:
        return forward_.contains(key(iteration_.messages[action.message.index()].source));
      case ActionKind::send_gradient:
        return backward_.contains(key(iteration_.messages[action.message.index()].destination));
      case ActionKind::reduce:
      case ActionKind::reduce_partial:
      case ActionKind::reduce_send:
        return std::none_of(iteration_.actions[d].begin() + static_cast<std::ptrdiff_t>(next_[d]),
                            iteration_.actions[d].end(), [&](const Action& later) {
                              return uses(later.stage, action.group) && makes_gradients(later.kind);
                            });
      case ActionKind::fetch_state: return committed_ && !here_.contains(d);
      case ActionKind::optimizer_step:
        return committed_ && (!action.group.valid() || is_here(d, action.group));
      case ActionKind::offload_state:
        return is_here(d, action.group) && updated_.contains({d, action.group.value});
      default: return true;
    }
  }

  /// Whether a stage's parameters are on a device, and those of no other one in its way.
  bool has_room(std::size_t d, StageId stage) const {
    if (evicted_.contains({d, stage})) return false;
    if (parameters_in_host(plan_, stage)) return true;
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      const auto lists = plan_.leads_of(StageId{s});
      if (parameters_in_host(plan_, StageId{s}) && !evicted_.contains({d, StageId{s}}) &&
          std::find(lists.begin(), lists.end(), DeviceId{d}) != lists.end())
        return false;
    }
    return true;
  }

  /// Whether a group's moments have come to a device.
  bool is_here(std::size_t d, GroupId group) const {
    const auto found = here_.find(d);
    return found != here_.end() && found->second == group.value;
  }

  bool has_content(const Action& action) const {
    for (std::size_t i = 0; i < iteration_.deliveries.size(); ++i)
      if (key(iteration_.deliveries[i].destination) == key(action) &&
          !content_received_.contains(static_cast<std::int32_t>(i)))
        return false;
    return true;
  }

  bool uses(StageId stage, GroupId group) const {
    const auto& all = plan_.groups[group.index()].uses;
    return std::any_of(all.begin(), all.end(),
                       [stage](const ParameterUse& use) { return use.stage == stage; });
  }

  /// What an action of a sum takes is sent, and who adds has added up its own uses.
  bool has_parts(std::size_t d, const Action& action) const {
    using enum ActionKind;
    const GroupSum& sum = sums_[action.group.index()];
    const SumRole role = role_of(sum, DeviceId{d});
    if (role.place < 0) return true;
    const auto acted = [&](ActionKind kind, DeviceId device) {
      return summed_.contains({action.group.value, kind, device.index()});
    };
    for (const SumTransfer& from : sum.taken(role.place, action.kind))
      if (!acted(from.kind, plan_.groups[action.group.index()].holders.at(
                                static_cast<std::size_t>(from.holder))))
        return false;
    if (action.kind != reduce && action.kind != reduce_partial) return true;
    if (role.sends && !acted(reduce_send, DeviceId{d})) return false;
    return action.kind != reduce || role.partials == 0 || acted(reduce_partial, DeviceId{d});
  }

  void done(std::size_t d, const Action& action) {
    switch (action.kind) {
      case ActionKind::forward: forward_.insert(key(action)); break;
      case ActionKind::backward:
      case ActionKind::backward_input: backward_.insert(key(action)); break;
      case ActionKind::offload: away_.insert(key(action)); break;
      case ActionKind::fetch: away_.erase(key(action)); break;
      case ActionKind::evict_parameters: evicted_.insert({d, action.stage}); break;
      case ActionKind::fetch_parameters: evicted_.erase({d, action.stage}); break;
      case ActionKind::fetch_state: here_[d] = action.group.value; break;
      case ActionKind::offload_state: here_.erase(d); break;
      case ActionKind::optimizer_step: updated_.insert({d, action.group.value}); break;
      case ActionKind::send: sent_.insert(action.message.value); break;
      case ActionKind::relay: passed_.insert(of(action)); break;
      case ActionKind::relay_gradient: gradient_passed_.insert(of(action)); break;
      case ActionKind::receive: received_.insert(action.message.value); break;
      case ActionKind::send_gradient: gradient_sent_.insert(action.message.value); break;
      case ActionKind::receive_gradient: gradient_received_.insert(action.message.value); break;
      case ActionKind::send_content: content_sent_.insert(action.delivery.value); break;
      case ActionKind::receive_content: content_received_.insert(action.delivery.value); break;
      case ActionKind::reduce_send:
      case ActionKind::reduce_partial:
      case ActionKind::reduce:
      case ActionKind::reduce_relay: summed_.insert({action.group.value, action.kind, d}); break;
      default: break;
    }
    if (!action.microbatch.valid()) return;
    auto& open = open_[action.stage.value];
    open.insert(action.microbatch.value);
    auto& most = peak[action.stage.index()];
    most = std::max(most, static_cast<std::int32_t>(open.size()));
    if (--left_[{action.stage.value, action.microbatch.value}] == 0)
      open.erase(action.microbatch.value);
  }

  const ParallelPlan& plan_;
  const IterationPlan& iteration_;
  std::vector<std::size_t> next_;  // Per device.
  std::vector<GroupSum> sums_;     // Per group.
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> left_;
  std::map<std::int32_t, std::set<std::int32_t>> open_;
  std::set<PartKey> forward_, backward_, away_;
  std::set<std::pair<std::size_t, StageId>> evicted_;  // Device, stage: its parameters are away.
  std::map<std::size_t, std::int32_t> here_;  // Per device: the group whose moments have come.
  std::set<std::pair<std::size_t, std::int32_t>> updated_;  // Device, group.
  std::set<std::int32_t> sent_, received_, gradient_sent_, gradient_received_;
  std::set<std::int32_t> passed_, gradient_passed_;
  std::set<std::int32_t> content_sent_, content_received_;
  std::set<std::tuple<std::int32_t, ActionKind, std::size_t>> summed_;  // Group, action, device.
  bool committed_ = false;
  bool sound_ = true;

 public:
  std::vector<std::int32_t> peak;  ///< Per stage, in microbatches.
};

/// Another order of one list: two neighbours exchanged, an action moved, or a piece shuffled.
void reorder(std::vector<Action>& list, std::mt19937& random) {
  if (list.size() < 2) return;
  const int last = static_cast<int>(list.size()) - 1;
  const auto at = [&](int place) { return list.begin() + place; };
  const int from = draw(random, 0, last);
  const int to = draw(random, 0, last);
  switch (draw(random, 0, 2)) {
    case 0: std::iter_swap(at(std::max(from, 1)), at(std::max(from, 1) - 1)); break;
    case 1:
      if (from < to)
        std::rotate(at(from), at(from + 1), at(to + 1));
      else
        std::rotate(at(to), at(from), at(from + 1));
      break;
    default: std::shuffle(at(std::min(from, to)), at(std::max(from, to) + 1), random);
  }
}

TEST_CASE("the checker finds an order sound exactly if its execution is", "[scheduler][property]") {
  int sound = 0, unsound = 0;
  for (std::uint32_t seed = 0; seed < 5000; ++seed) {
    auto made = random_case(seed);
    if (seed >= 4000) testing::draw_host_state(made.plan, seed);
    if (seed >= 4500) testing::draw_host_parameters(made.plan, seed);
    auto iteration = plan_iteration(made.plan, made.input).value();
    std::mt19937 random(seed + 77);
    for (int i = 0, count = draw(random, 1, 2); i < count; ++i)
      reorder(iteration.actions[random() % iteration.actions.size()], random);
    Execution execution(made.plan, iteration);
    const bool runs = execution.run();
    (runs ? sound : unsound) += 1;
    if (runs) iteration.max_in_flight = execution.peak;
    const auto faults = check(made.plan, iteration);
    INFO("seed " << seed << " " << made.input.schedule.name << "\n" << text_of(faults));
    if (runs) REQUIRE(faults.empty());
    if (!runs) REQUIRE(kinds(faults) != std::set<FaultKind>{});
    if (!runs) continue;
    for (auto& most : iteration.max_in_flight) {
      if (most == 0) continue;
      --most;
      REQUIRE(kinds(check(made.plan, iteration)) == std::set{FaultKind::memory});
      ++most;
    }
  }
  CAPTURE(sound, unsound);
  CHECK(sound > 500);
  CHECK(unsound > 1500);
}

}  // namespace
}  // namespace troupe::scheduler
