#include "actors/head/scheduler_actor.hpp"

#include <memory>
#include <utility>

#include "actors/head/recorder_actor.hpp"
#include "actors/link/exceptions.hpp"
#include "engine/iteration/refused_batch.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/profile_check.hpp"
#include "engine/profiling/this_machine.hpp"
#include "runtime/data/batches/background_thread.hpp"

namespace troupe::actors {

namespace {

using Self = SchedulerActor::stateful_pointer<SchedulerState>;

using Reports = std::map<std::int64_t, std::vector<engine::BatchReport>>;

/// What all nodes have said of a batch; nothing before the last of them did.
std::optional<std::vector<engine::BatchReport>> complete(const SchedulerState& state,
                                                         Reports& reports, std::int64_t batch) {
  const auto found = reports.find(batch);
  if (found == reports.end() || found->second.size() < state.reporters) return std::nullopt;
  return std::move(reports.extract(found).mapped());
}

void tell_nodes(Self self, std::map<NodeId, engine::BatchOrder> orders) {
  for (auto& [node, order] : orders) self->send(self->state.nodes[node.index()], std::move(order));
}

/// The batch is planned anew where another layout comes up: whose word this is goes with it.
void tell_unplanned(Self self, const Error& error) {
  const auto& state = self->state;
  self->send(state.supervisor, next_atom::value, state.configuration.epoch_number, error);
}

/// Has batches decoded up to `data.prefetch` beyond what was asked for, each once it is measured;
/// one more is measured.
void order_ahead(Self self) {
  auto& state = self->state;
  const std::int64_t end = state.wanted + state.setup->job.data.prefetch;
  for (; state.next_measure <= end; ++state.next_measure)
    tell_nodes(self, state.planner->measures(state.next_measure));
  for (; state.next_order < end; ++state.next_order) {
    const auto lengths = complete(state, state.lengths, state.next_order);
    if (!lengths) return;
    auto orders = state.planner->orders(state.next_order, *lengths);
    if (!orders.ok()) return tell_unplanned(self, orders.error());
    tell_nodes(self, std::move(orders).value());
  }
}

/// There is no plan of the next batch: another layout may have one.
void tell_of_refusal(Self self, const Error& error) {
  auto refused = self->state.planner->take_refused();
  if (!refused) return tell_unplanned(self, error);
  self->send(self->state.supervisor,
             std::make_shared<const engine::RefusedBatch>(*std::move(refused)));
}

/// Plans what is asked for and decoded, in order.
void plan_ready(Self self) {
  auto& state = self->state;
  while (state.next_plan < state.wanted) {
    const auto reports = complete(state, state.reports, state.next_plan);
    if (!reports) return;
    auto planned = state.planner->plan(state.next_plan, *reports);
    if (!planned.ok()) return tell_of_refusal(self, planned.error());
    ++state.next_plan;
    const auto batch = std::make_shared<const engine::PlannedBatch>(std::move(planned).value());
    self->send(state.supervisor, batch);
    if (state.has_templates || batch->iteration.samples.empty()) continue;
    // Behind the first batch, which then trains while this is worked out.
    state.has_templates = true;
    self->send(state.supervisor,
               std::make_shared<const scheduler::TemplateSet>(engine::templates_for_losses(
                   *state.setup, state.configuration.plan, batch->iteration.samples)));
  }
}

void begin(Self self, const Configuration& configuration,
           const std::vector<caf::strong_actor_ptr>& nodes, std::int64_t next) {
  data::run_in_background();  // On the actor's own thread.
  auto& state = self->state;
  // Before its plan changes under the old planner.
  const LearnedCosts learned =
      state.planner ? state.planner->learned() : std::exchange(state.learned, {});
  if (std::exchange(state.is_asked_layout, false)) state.has_templates = false;
  state.configuration = configuration;
  state.nodes.clear();
  for (const auto& node : nodes) state.nodes.push_back(caf::actor_cast<NodeActor>(node));
  state.planner.emplace(
      state.configuration.plan,
      engine::planner_options(*state.setup, state.epochs, configuration.epoch_number));
  state.planner->restore(std::exchange(state.deals, {}));
  state.planner->restore(learned);
  state.planner->take_times(state.times);
  state.check.emplace(*state.setup, state.configuration.plan, engine::core_count(), state.began);
  state.reporters = state.configuration.plan.nodes().size();
  state.next_plan = state.next_order = state.next_measure = state.wanted = next;
  state.lengths.clear();
  state.reports.clear();
}

void note_speed(SchedulerState& state, NodeId node, double times) {
  state.times[node] = times;
  if (state.planner) state.planner->take_times(state.times);
}

void say_what_was_learned(Self self, std::int64_t number) {
  auto& state = self->state;
  LearnedCosts learned = state.planner ? state.planner->learned() : state.learned;
  learned.profile = state.setup->profile.measured_at;
  self->send(state.supervisor, save_atom::value, number,
             std::make_shared<const LearnedCosts>(std::move(learned)));
}

}  // namespace

SchedulerActor::behavior_type scheduler(Self self, const engine::JobSetup* setup,
                                        JobProgress before, SupervisorActor supervisor) {
  self->state.setup = setup;
  self->state.epochs = data::Epochs(std::move(before.data.epochs));
  self->state.next_plan = before.step;
  self->state.deals = std::move(before.deals);
  // Factors are over a profile's times; one that was measured anew knows better.
  if (before.learned.profile == setup->profile.measured_at)
    self->state.learned = std::move(before.learned);
  self->state.began = engine::utc_now();
  self->state.supervisor = supervisor;
  tell_of_exceptions(self, "the scheduler", [self](const Error& error) {
    self->send(self->state.supervisor, failed_atom::value, error);
  });
  return {
      [self](begin_atom, const Configuration& configuration,
             const std::vector<caf::strong_actor_ptr>& nodes,
             std::int64_t next) { begin(self, configuration, nodes, next); },
      [self](layout_atom) { self->state.is_asked_layout = true; },
      [self](next_atom) {
        ++self->state.wanted;
        // What is due goes before what is looked at ahead.
        plan_ready(self);
        order_ahead(self);
      },
      [self](const engine::BatchReport& report) {
        if (report.epoch_number != self->state.configuration.epoch_number) return;
        auto& state = self->state;
        (report.measured ? state.lengths : state.reports)[report.batch].push_back(report);
        if (!report.measured) return plan_ready(self);
        order_ahead(self);
      },
      [self](speed_atom, NodeId node, double times) { note_speed(self->state, node, times); },
      [self](const PlannedBatchPtr& batch, const StepRecordPtr& record) {
        const bool current =
            batch->iteration.epoch_number == self->state.configuration.epoch_number;
        if (!self->state.planner || !current) return;
        self->state.planner->learn(*batch, record->events, record->metrics.step_ms);
        self->state.check->add(batch->prediction, record->events);
      },
      [self](save_atom, std::int64_t number) { say_what_was_learned(self, number); },
  };
}

}  // namespace troupe::actors
