#include "actors/supervisor/supervisor_refused_batch.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/supervisor/supervisor_last_save.hpp"
#include "actors/supervisor/supervisor_layout.hpp"
#include "actors/supervisor/supervisor_next_layout.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "actors/supervisor/supervisor_steps.hpp"
#include "engine/layout/asked_layout.hpp"
#include "engine/layout/tight_sample.hpp"
#include "runtime/observe/plan_words.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/recovery/next_layout.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;

/// A layout with a plan for the batch, and the way there.
struct RoomyLayout {
  ParallelPlan plan;
  LayoutChange change;
};

/// Looks for one. REQUIRES: a batch is refused; it does not outlive the state.
class RoomSearch {
 public:
  explicit RoomSearch(const SupervisorState& state) : state_(state) {}

  std::optional<RoomyLayout> find() {
    if (auto first = first_layout()) return first;
    return known_layout();
  }

  /// Whether the layout that the job begins with has a plan for it, and lacks nodes alone.
  bool lacks_nodes() const {
    const ParallelPlan& first = state_.resources->plan;
    return !are_there(first) && check_room(state_, first).ok() && rehearse(first).ok();
  }

  /// Why the first one that was found cannot be; a clause.
  std::string hindrance() const { return hindrance_ ? hindrance_->message : "the job knows none"; }

 private:
  Status rehearse(const ParallelPlan& plan) const {
    return engine::rehearse_as_trained(state_.resources->setup, plan, state_.refusals.due->samples);
  }

  bool are_there(const ParallelPlan& plan) const {
    const std::set<NodeId> nodes = plan.nodes(), there = state_.job.members.staying();
    return std::includes(there.begin(), there.end(), nodes.begin(), nodes.end());
  }

  /// Whether it has room, and was not found to have no plan. What has refused the batch itself is
  /// no news.
  Status check(const ParallelPlan& plan) const {
    const auto found = std::ranges::find(planless_, plan);
    return found == planless_.end() ? check_room(state_, plan) : Status(*hindrance_);
  }

  void note(const ParallelPlan& plan, const Status& status) {
    const std::vector<ParallelPlan>& refused = state_.refusals.layouts;
    if (status.ok() || hindrance_ || std::ranges::find(refused, plan) != refused.end()) return;
    hindrance_ = status.error();
  }

  std::optional<RoomyLayout> first_layout() {
    const ParallelPlan& first = state_.resources->plan;
    if (!are_there(first) || !check_room(state_, first).ok()) return std::nullopt;
    const StatePlacement& held = state_.job.members.placed();
    if (!changing_job(state_, held).fits(first).ok()) return std::nullopt;
    auto change = plan_fitting_change(state_, first);
    if (!change.ok() || !rehearse(first).ok()) return std::nullopt;
    return RoomyLayout{first, std::move(change).value()};
  }

  std::optional<RoomyLayout> known_layout() {
    const StatePlacement& held = state_.job.members.placed();
    scheduler::ChangingJob changing = changing_job(state_, held);
    changing.looks_further = true;
    changing.fits = [this, fits = std::move(changing.fits)](const ParallelPlan& plan) {
      Status can = check(plan);
      if (can.ok()) can = fits(plan);
      note(plan, can);
      return can;
    };
    for (;;) {  // Each time without one more of those there are.
      auto next = scheduler::next_layout(changing, state_.job.members.staying());
      if (!next.ok()) return std::nullopt;
      scheduler::NextLayout& made = next.value();
      const Status can = made.room.ok() ? rehearse(made.plan) : made.room;
      if (can.ok()) {
        RoomyLayout found{std::move(made.plan), {}};
        found.change.moves = std::move(made.moves);
        found.change.want = std::move(made.want);
        return found;
      }
      note(made.plan, can);
      planless_.push_back(std::move(made.plan));
    }
  }

  const SupervisorState& state_;
  std::vector<ParallelPlan> planless_;  ///< With room by what bounds say, and no plan or way there.
  std::optional<Error> hindrance_;
};

/// Why the batch has no plan here, with the sample that has least room.
Error explained(const SupervisorState& state) {
  const engine::RefusedBatch& refused = *state.refusals.due;
  return engine::with_tight_sample(refused.why, state.resources->setup, state.configuration.plan,
                                   refused.samples);
}

/// The job ends, behind a save.
void end_without_room(Self self, const RoomSearch& search) {
  auto& state = self->state;
  Error error = explained(state);
  const std::size_t there = state.job.members.staying().size();
  error.message += "; no other layout of the " + std::to_string(there) +
                   (there == 1 ? " node that is" : " nodes that are") +
                   " there has a plan for step " + std::to_string(state.refusals.batch + 1) + ": " +
                   search.hindrance();
  if (!search.lacks_nodes()) return save_and_fail(self, error);
  const std::size_t enough = state.resources->plan.nodes().size();
  begin_stop(self,
             (error.where.empty() ? "" : error.where + ": ") + error.message + "; the layout of " +
                 std::to_string(enough) + " nodes that the job begins with has one",
             exit_code(error));
}

}  // namespace

void batch_refused(Self self, const RefusedBatchPtr& refused) {
  auto& state = self->state;
  if (refused->epoch_number != state.job.members.generation()) return;
  if (state.job.phase() != JobPhase::training || state.job.is_regrouping() ||
      state.job.is_stopping())
    return;
  Refusals& refusals = state.refusals;
  if (refusals.batch != refused->batch) refusals.layouts.clear();
  refusals.batch = refused->batch;
  refusals.layouts.push_back(state.configuration.plan);
  refusals.due = refused;
  ask_for_plan(self);
}

void take_up_roomy_layout(Self self) {
  auto& state = self->state;
  if (state.job.loop.progress().step == 0) return save_and_fail(self, explained(state));
  const Time due = now(self);
  need_templates(state);
  RoomSearch search(state);
  auto found = search.find();
  if (!found) return end_without_room(self, search);
  const std::string what = "step " + std::to_string(state.refusals.batch + 1) + " has no plan on ";
  const std::string& why = state.refusals.due->why.message;
  state.resources->logger.warning(what + "the present layout: " + why +
                                  "; the job takes up another one, " +
                                  observe::layout_words(found->plan));
  found->change.due = due;
  found->change.why = what + "the layout before: " + why;
  tell_of_change(self);
  bring_up(self, found->plan, std::move(found->change));
}

}  // namespace troupe::actors
