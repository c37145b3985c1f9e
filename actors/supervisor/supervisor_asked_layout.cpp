#include "actors/supervisor/supervisor_asked_layout.hpp"

#include <utility>
#include <vector>

#include "actors/supervisor/supervisor_layout.hpp"
#include "actors/supervisor/supervisor_members.hpp"
#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "actors/supervisor/supervisor_steps.hpp"
#include "engine/execution/stage_kinds.hpp"
#include "engine/layout/asked_layout.hpp"
#include "runtime/job/read_layout.hpp"
#include "runtime/job/where_given.hpp"
#include "runtime/observe/plan_words.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;
using Phase = JobPhase;

constexpr const char* kWho = "troupe ctl asks for it";

/// Whether a step follows that is not planned yet.
Status check_time(const SupervisorState& state) {
  const auto refuse = [](const char* why, const char* fix) {
    return Error{Errc::unavailable, why, {}, fix};
  };
  if (state.job.phase() == Phase::gathering || state.job.phase() == Phase::joining)
    return refuse("the job has not begun", "ask again once it trains");
  const char* const fix = "resume the job with more steps, on this layout";
  if (state.job.phase() == Phase::collecting)
    return refuse("the job has trained its last step", fix);
  // A plan that comes while a step is under way is of the present layout.
  const std::int64_t coming = state.job.loop.is_asked() && !state.job.loop.is_idle() ? 1 : 0;
  const std::int64_t last = state.job.loop.total_steps();
  if (state.job.loop.is_last_planned() ||
      (last > 0 && state.job.loop.planned_steps() + coming >= last))
    return refuse("the job's last step is planned already", fix);
  return Done{};
}

/// Why a node can have no stage; empty: it can.
std::pair<std::string, std::string> trouble_with(const SupervisorState& state, NodeId id) {
  const std::string who = "node " + std::to_string(id.value);
  if (!state.job.members.is_there(id))
    return {who + " is not there", "troupe ctl RUN status names those there are"};
  if (!state.job.members.takes_part(id))
    return {who + " still opens its data", "ask again once it has joined"};
  if (state.job.members.leaving().contains(id))
    return {who + " leaves the job", "lay it out on the others"};
  return {};
}

Status check_nodes(const SupervisorState& state, const std::vector<HandStage>& stages,
                   const std::string& path) {
  for (std::size_t i = 0; i < stages.size(); ++i)
    if (auto [why, fix] = trouble_with(state, NodeId{stages[i].node}); !why.empty())
      return Error{Errc::unavailable, std::move(why),
                   path + ".stages[" + std::to_string(i) + "].node", std::move(fix)};
  return Done{};
}

/// Errors: unavailable: at the key of a stage on a node that is not there, or is about to leave.
Status check_nodes(const SupervisorState& state, const HandLayout& layout) {
  for (std::size_t i = 0; i < layout.pipelines.size(); ++i) {
    auto there =
        check_nodes(state, layout.pipelines[i], "parallel.pipelines[" + std::to_string(i) + "]");
    if (!there.ok()) return there;
  }
  for (std::size_t i = 0; i < layout.replicas.size(); ++i) {
    auto there = check_nodes(state, layout.replicas[i].stages,
                             "parallel.replicas[" + std::to_string(i) + "]");
    if (!there.ok()) return there;
  }
  return Done{};
}

/// Errors: as `check_nodes`, `engine::plan_asked_layout` and `engine::check_stage_kinds`: nodes
/// would find only when they build it that no kind can run a stage.
Result<scheduler::Relayout> plan_on_these_nodes(const SupervisorState& state,
                                                const HandLayout& layout) {
  if (auto there = check_nodes(state, layout); !there.ok()) return std::move(there).error();
  const engine::JobSetup& setup = state.resources->setup;
  auto made = engine::plan_asked_layout(setup, layout, state.configuration.plan,
                                        state.job.members.staying(), rooms_of(state));
  if (!made.ok()) return made;
  auto run = engine::check_stage_kinds(made.value().plan, setup.modules(),
                                       setup.job.scheduler.offloads("activations"));
  if (!run.ok()) return std::move(run).error();
  return made;
}

/// Whether the job can change to it and train. While another layout comes up nobody knows yet where
/// state will lie: then only when it is taken up.
Status check_change(const SupervisorState& state, const ParallelPlan& plan) {
  if (state.job.phase() == Phase::training)
    if (auto change = plan_fitting_change(state, plan); !change.ok())
      return std::move(change).error();
  if (!state.newest_batch) return Done{};
  return engine::rehearse(state.resources->setup, plan, state.newest_batch->iteration.samples);
}

/// An error at a key of the layout, at the line of its file.
Error in_file(Error error, const job::WrittenLayout& written) {
  const std::string given = job::where_given(written.origins, error.where);
  if (given.empty() || error.where.empty()) return error;
  error.message = error.where + ": " + error.message;
  error.where = given;
  return error;
}

}  // namespace

Result<std::string> ask_for_layout(Self self, const ControlRequest& request) {
  auto& state = self->state;
  if (auto in_time = check_time(state); !in_time.ok()) return std::move(in_time).error();
  auto written = job::read_layout(request.layout, request.file, state.resources->setup.job);
  if (!written.ok()) return std::move(written).error();
  auto made = plan_on_these_nodes(state, written.value().layout);
  if (!made.ok()) return in_file(std::move(made).error(), written.value());
  const std::string before =
      state.asked_layout ? "; the one that was asked for before is dropped" : "";
  if (made.value().plan == state.configuration.plan) {
    state.asked_layout.reset();
    return "this is the present layout: it stays" + before;
  }
  if (auto can = check_change(state, made.value().plan); !can.ok()) return std::move(can).error();
  state.asked_layout = std::move(written.value().layout);
  const auto& idle = made.value().idle;
  const std::string what =
      observe::layout_words(made.value().plan) +
      (idle.empty() ? "" : ", " + who_text({idle.begin(), idle.end()}) + " without work");
  state.resources->logger.info("troupe ctl asks for another layout from the next step on: " + what +
                               before);
  if (state.job.phase() == Phase::training) ask_for_plan(self);
  return "layout changes before the next step: " + what + before;
}

bool take_up_asked_layout(Self self) {
  auto& state = self->state;
  const HandLayout layout = *std::exchange(state.asked_layout, std::nullopt);
  const Time due = now(self);
  const auto fail = [&](const Error& error) {
    state.resources->logger.warning(
        "the layout that troupe ctl asked for is not taken up, the present one stays: " +
        to_string(error));
    return false;
  };
  const auto made = plan_on_these_nodes(state, layout);
  if (!made.ok()) return fail(made.error());
  const ParallelPlan& plan = made.value().plan;
  if (plan == state.configuration.plan) return false;  // A loss or a join has led to it.
  auto change = plan_fitting_change(state, plan);
  if (!change.ok()) return fail(change.error());
  change.value().due = due;
  change.value().why = kWho;
  take_up(self, plan, std::move(change).value());
  return true;
}

void drop_asked_layout(Self self) {
  auto& state = self->state;
  if (!std::exchange(state.asked_layout, std::nullopt)) return;
  state.resources->logger.warning(
      "the layout that troupe ctl asked for is not taken up: the job's last step was planned "
      "before");
}

}  // namespace troupe::actors
