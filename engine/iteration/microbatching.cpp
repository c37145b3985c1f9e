#include "engine/iteration/microbatching.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "engine/iteration/exchange_count.hpp"
#include "engine/iteration/item_ranges.hpp"
#include "engine/iteration/phase_replicas.hpp"
#include "engine/iteration/pipeline_costs.hpp"
#include "engine/iteration/pipeline_shares.hpp"
#include "engine/iteration/pipeline_speeds.hpp"
#include "engine/iteration/planning_budget.hpp"
#include "runtime/vocabulary/index.hpp"
#include "scheduler/cost/state_bytes.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/iteration/redistribution.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/simulate/llm_cap.hpp"
#include "scheduler/simulate/memory_bounds.hpp"
#include "scheduler/simulate/predicted_costs.hpp"

namespace troupe::engine {

namespace {

bool encoder_side_trains(const ModelGraph& model) {
  return std::any_of(model.modules.begin(), model.modules.end(), [](const ModuleSpec& module) {
    return module.kind != ModuleKind::llm && !module.freeze;
  });
}

}  // namespace

/// What the samples and pieces of a batch take, and these themselves.
struct Microbatching::Weighed {
  Work work;
  SampleUnits units;  ///< Of the batch and of the work's pieces, wherever that is moved.
};

Microbatching::Microbatching(const ParallelPlan& plan, MicrobatchingOptions options,
                             std::shared_ptr<const PlanningCosts> costs)
    : plan_(plan),
      options_(std::move(options)),
      costs_(std::move(costs)),
      splits_parts_(scheduler::runs_parts_apart(options_.schedule) &&
                    encoder_side_trains(plan.model)),
      llms_(replicas_of(plan, ModuleGroupId{plan.module_groups.size() - 1})) {
  can_exchange_ = can_exchange(plan);
  if (options_.adaptive_correction && costs_) correction_.emplace(plan_);
}

Result<DealtBatch> Microbatching::deal(DealtBatch batch, const PipelineSpeeds& speeds) const {
  if (costs_ && !batch.sums)
    batch.sums = std::make_shared<scheduler::SampleSums>(costs_->model, batch.samples);
  auto weights = weigh_samples(plan_, batch.sums.get(), batch.samples);
  if (!weights.ok()) return std::move(weights).error();
  batch.weights = std::move(weights).value();
  if (plan_.pipelines.size() == 1) {  // Whatever they weigh.
    auto all = deal_samples("count", std::vector<balancer::Workload>(batch.samples.size()), {1});
    return batch.pipelines = std::move(all).value(), std::move(batch);
  }
  const auto dealt = [&](Exchange exchange) {
    return deal_samples(options_.dealing, weights_for(exchange, batch.weights),
                        ms_per_work(speeds, exchange == Exchange::per_phase));
  };
  auto pipelines = dealt(tries(Exchange::off) ? Exchange::off : Exchange::per_phase);
  if (!pipelines.ok()) return std::move(pipelines).error();
  batch.pipelines = std::move(pipelines).value();
  if (!tries(Exchange::off) || !tries(Exchange::per_phase)) return batch;
  auto by_phase = dealt(Exchange::per_phase);
  if (!by_phase.ok()) return std::move(by_phase).error();
  return batch.by_phase = std::move(by_phase).value(), std::move(batch);
}

std::vector<double> Microbatching::ms_per_work(const PipelineSpeeds& speeds, bool llm) const {
  auto found = llm ? speeds.llm_ms_per_work() : speeds.ms_per_work();
  const NodeTimes nodes = times_to_plan();
  if (nodes.empty()) return found;
  const auto times = times_of_pipelines(plan_, speeds.stage_ms(), nodes, llm);
  for (std::size_t p = 0; p < found.size(); ++p) found[p] *= times[p];
  return found;
}

NodeTimes Microbatching::times_to_plan() const {
  return correction_ && correction_->tracking() ? NodeTimes{} : times_;
}

bool Microbatching::tries(Exchange exchange) const {
  if (!can_exchange_) return exchange == Exchange::off;
  return options_.exchange == "auto" || (options_.exchange == "off") == (exchange == Exchange::off);
}

Result<Microbatching::Weighed> Microbatching::work_for(const DealtBatch& batch,
                                                       Exchange exchange) const {
  auto made = work_of(batch, {});
  if (made.ok() && exchange == Exchange::per_phase && options_.items != "whole") {
    auto pieces =
        cut_into_pieces(plan_, batch.samples, made.value().work.phases, options_.microbatches);
    if (!pieces.empty()) made = work_of(batch, std::move(pieces));
  }
  if (!made.ok() || !bounds_memory()) return made;
  Work& work = made.value().work;
  std::vector<double> by_encoders;  // With an exchange others may take what has no room here.
  if (exchange == Exchange::off)
    by_encoders = scheduler::kept_by_encoders(plan_, work.bound_costs, batch.pipelines,
                                              options_.microbatches);
  work.rooms_in_flight =
      scheduler::rooms_in_flight(plan_, work.bound_costs, costs_->device_memory, by_encoders);
  return made;
}

Result<Microbatching::Weighed> Microbatching::work_of(const DealtBatch& batch,
                                                      std::vector<SamplePiece> pieces) const {
  Work work;
  work.pieces = std::move(pieces);
  work.times = times_to_plan();
  SampleUnits units(batch.samples, work.pieces);
  work.flow = std::make_shared<const scheduler::RowFlow>(plan_.model, units.shapes());
  auto sums = batch.sums;
  if (costs_ && (!sums || !work.pieces.empty()))
    sums = std::make_shared<scheduler::SampleSums>(costs_->model, units.shapes());
  work.profile = batch.weights;
  if (work.profile.empty()) {
    auto weights = weigh_samples(plan_, sums.get(), batch.samples);
    if (!weights.ok()) return std::move(weights).error();
    work.profile = std::move(weights).value();
  }
  work.workloads = work.profile;
  if (!costs_) {
    work.phases = phase_works(plan_, units, nullptr);
    return Weighed{std::move(work), std::move(units)};
  }
  const auto samples = sums->of(plan_);
  if (!samples.ok()) return samples.error();
  work.costs = scheduler::predicted_costs(plan_, samples.value(), costs_->options);
  work.samples = samples.value();
  if (options_.offload_encoders)
    work.costs = scheduler::with_offloading(std::move(work.costs), plan_, work.flow);
  if (bounds_memory())
    work.bound_costs = scheduler::with_arriving_rows(work.costs, plan_, work.flow);
  work.phases = phase_works(plan_, units, &samples.value(),
                            scheduler::bytes_per_element(costs_->options.dtype),
                            inside_node_share(costs_->options.speeds), work.times);
  if (!correction_) return Weighed{std::move(work), std::move(units)};
  const auto shares = std::make_shared<const StageShares>(plan_, samples.value(), units.shapes());
  work.costs.task_ms = correction_->corrected(std::move(work.costs.task_ms), shares);
  if (work.times.empty())  // Who is said to be slow may be so in what was learned, too.
    follow_speeds(plan_, *correction_, *shares, work.phases);
  for (std::size_t p = 0; p < batch.pipelines.size(); ++p) {
    std::map<std::size_t, balancer::Workload> known;  // Of samples that are alike one says all.
    for (const auto sample : batch.pipelines[p]) {
      const auto [weight, is_new] = known.try_emplace(samples.value().shape_of(at(sample)));
      if (is_new)
        weight->second =
            correction_->corrected(work.profile[at(sample)], PipelineId{p}, *shares, sample);
      work.workloads[at(sample)] = weight->second;
    }
  }
  return Weighed{std::move(work), std::move(units)};
}

std::vector<std::int32_t> Microbatching::in_flight_bounds() const {
  if (options_.max_in_flight == 0) return {};
  return std::vector<std::int32_t>(plan_.stages.size(), options_.max_in_flight);
}

Result<IterationPlan> Microbatching::order(const DealtBatch& batch, const SampleUnits& units,
                                           const Work& work,
                                           const scheduler::SimulationCosts& profile,
                                           std::vector<MicrobatchList> microbatches) const {
  scheduler::IterationInput input;
  input.step = batch.step;
  input.epoch_number = batch.epoch_number;
  if (std::any_of(microbatches.begin(), microbatches.end(), [&](const MicrobatchList& list) {
        return names_pieces(list, batch.samples.size());
      }))
    input.pieces = work.pieces;
  input.microbatches = std::move(microbatches);
  input.flow = work.flow;
  input.units = &units;
  input.schedule = options_.schedule;
  input.offload_encoders = options_.offload_encoders;
  input.max_in_flight = in_flight_bounds();
  if (input.max_in_flight.empty() && bounds_memory()) {
    auto bounds =
        scheduler::memory_bounds(plan_, work.bound_costs, costs_->device_memory, input.microbatches,
                                 options_.schedule, *work.flow, units);
    if (!bounds.ok()) return std::move(bounds).error();
    input.max_in_flight = std::move(bounds).value();
    input.refuse_bound = [&](StageId stage, std::int32_t needed,
                             const std::vector<MicrobatchList>& lists) {
      return scheduler::short_of_memory(plan_, work.bound_costs, costs_->device_memory, lists,
                                        options_.schedule, stage, needed);
    };
  }
  input.routes.pin = options_.boundary;
  if (work.costs.task_ms) {
    input.routes.link_ms = scheduler::link_costs(work.costs);
    input.task_cost = correction_ ? work.costs.task_ms : profile.task_ms;
    input.message_cost = scheduler::message_costs(plan_, work.costs);
  }
  return scheduler::plan_iteration(plan_, batch.samples, std::move(input));
}

Result<PredictedIteration> Microbatching::plan_kept(DealtBatch& batch) const {
  auto best = best_plan(batch);
  if (best.ok()) best.value().iteration.samples = std::move(batch.samples);
  return best;
}

Result<PredictedIteration> Microbatching::best_plan(DealtBatch& batch) const {
  if (!tries(Exchange::per_phase)) return plan_by(batch, Exchange::off);
  // Samples are too many to copy for another deal of them.
  const auto plan_exchanged = [&](Exchange exchange) {
    if (batch.by_phase.empty()) return plan_by(batch, exchange);
    std::swap(batch.pipelines, batch.by_phase);
    auto made = plan_by(batch, exchange);
    std::swap(batch.pipelines, batch.by_phase);
    return made;
  };
  auto exchanged = plan_exchanged(Exchange::per_phase);
  // A microbatch that feeds several llm microbatches may need more of them in flight.
  const auto no_order = [&] {
    return !exchanged.ok() && exchanged.error().code == Errc::infeasible;
  };
  if (no_order() && options_.items != "whole") exchanged = plan_exchanged(Exchange::whole_samples);
  const bool has_no_order = no_order();
  if (!tries(Exchange::off) && !has_no_order) return exchanged;
  auto plain = plan_by(batch, Exchange::off);
  if (!exchanged.ok()) {
    if (plain.ok()) plain.value().prediction.exchange_refused = exchanged.error();
    return plain;
  }
  if (!plain.ok()) return exchanged;
  // By what plans are made of; where nothing is predicted phases are balanced. What brings nothing
  // moves no rows.
  if (!costs_ || planned_step_ms(exchanged) < planned_step_ms(plain)) return exchanged;
  // Where no phase had room for it, the exchange is no choice.
  const Prediction& other = exchanged.value().prediction;
  if (!other.exchanged) plain.value().prediction.exchange_refused = other.exchange_refused;
  return plain;
}

Result<PredictedIteration> Microbatching::plan_by(const DealtBatch& batch,
                                                  Exchange exchange) const {
  auto weighed = work_for(batch, exchange);
  if (!weighed.ok()) return std::move(weighed).error();
  const auto work = std::make_shared<const Work>(std::move(weighed.value().work));
  const auto cuts = cuts_of(batch, *work, weighed.value().units, exchange);
  const auto ways = ways_of(exchange, *work);
  Way way = ways.front();
  auto best = plan_one(batch, work, *cuts, way);
  for (const Way& other_way : std::span(ways).subspan(1)) {
    auto other = plan_one(batch, work, *cuts, other_way);
    if (planned_step_ms(other) < planned_step_ms(best)) best = std::move(other), way = other_way;
  }
  if (!best.ok() && best.error().code == Errc::infeasible && bounds_memory() &&
      way.shared_microbatches.value_or(options_.microbatches) < options_.microbatches) {
    way.shared_microbatches = options_.microbatches;  // The more rounds, the less is in each.
    if (auto other = plan_one(batch, work, *cuts, way); other.ok()) best = std::move(other);
  }
  if (!way.is_compared || (!best.ok() && best.error().code != Errc::infeasible)) return best;
  const PlanSize size{static_cast<double>(batch.samples.size()),
                      static_cast<double>(plan_.stages.size()), static_cast<double>(llms_.size()),
                      static_cast<double>(options_.microbatches)};
  for (const auto& policy :
       compared_policies(best.ok() ? planned_step_ms(best) : 0, size, options_.evaluations)) {
    way.policy = policy;
    auto other = plan_one(batch, work, *cuts, way);
    if (planned_step_ms(other) < planned_step_ms(best)) best = std::move(other);
  }
  return best;
}

std::vector<Microbatching::Way> Microbatching::ways_of(Exchange exchange, const Work& work) const {
  Way way{exchange, options_.policy, compares_whole_plans(exchange)};
  if (exchange == Exchange::off) return {way};
  const auto encoders = std::span(work.phases).first(work.phases.size() - 1);
  std::vector<Way> ways;
  const auto add = [&](std::int64_t microbatches, bool at_once) {
    way.shared_microbatches = microbatches;
    way.at_once = at_once;
    ways.push_back(way);
  };
  const auto of_pieces = shared_microbatches(encoders, options_.microbatches);
  add(of_pieces, false);
  if (!costs_) return ways;  // Nobody could tell which takes less.
  // Pieces allow more rounds, and each round takes something of its own.
  const auto of_whole = shared_microbatches(encoders, options_.microbatches, false);
  if (of_whole != of_pieces) add(of_whole, false);
  if (scheduler::has_phases(options_.schedule)) add(options_.microbatches, true);
  return ways;
}

bool Microbatching::compares_whole_plans(Exchange exchange) const {
  const bool is_whole =
      plan_.replicas.size() == plan_.pipelines.size() * plan_.module_groups.size();
  return options_.policy == "auto" && costs_ && (exchange != Exchange::off || !is_whole);
}

double Microbatching::planned_step_ms(const Result<PredictedIteration>& made) const {
  if (!made.ok()) return std::numeric_limits<double>::infinity();
  const Prediction& prediction = made.value().prediction;
  return correction_ ? prediction.calibrated_step_ms : prediction.profile_step_ms;
}

Result<PredictedIteration> Microbatching::finish(const DealtBatch& batch, const SampleUnits& units,
                                                 std::shared_ptr<const Work> work,
                                                 std::vector<MicrobatchList> microbatches,
                                                 Prediction prediction) const {
  PredictedIteration result{{}, std::move(prediction), std::move(work)};
  result.prediction.phases.clear();
  result.prediction.far_rows.clear();
  for (std::size_t g = 0; g < plan_.module_groups.size(); ++g) {
    const PhaseWork& phase = result.work->phases[g];
    result.prediction.phases.push_back(phase_balance(plan_, ModuleGroupId{g}, microbatches, phase));
    result.prediction.far_rows.push_back(far_rows(plan_, ModuleGroupId{g}, microbatches, phase));
  }
  const auto profile = profile_costs(*result.work, microbatches);
  auto iteration = order(batch, units, *result.work, profile, std::move(microbatches));
  if (!iteration.ok()) return std::move(iteration).error();
  result.iteration = std::move(iteration).value();
  if (costs_)
    if (auto done = predict(result.iteration, *result.work, profile, result.prediction); !done.ok())
      return std::move(done).error();
  return result;
}

Result<PredictedIteration> Microbatching::amend(PredictedIteration planned,
                                                std::vector<SampleShape>& samples,
                                                const SamplePlaces& places) const {
  AmendedCut cut = amend_cut(plan_, planned.iteration, samples, places);
  DealtBatch batch{planned.iteration.step, planned.iteration.epoch_number, std::move(samples),
                   std::move(cut.pipelines)};
  auto weighed = work_of(batch, std::move(cut.pieces));
  auto made = weighed.ok() ? finish(batch, weighed.value().units,
                                    std::make_shared<const Work>(std::move(weighed.value().work)),
                                    std::move(cut.microbatches), std::move(planned.prediction))
                           : Result<PredictedIteration>(std::move(weighed).error());
  (made.ok() ? made.value().iteration.samples : samples) = std::move(batch.samples);
  return made;
}

void Microbatching::learn(const IterationPlan& iteration, const Prediction& prediction,
                          std::span<const observe::TraceEvent> events, double step_ms) {
  if (!costs_ || step_ms <= 0) return;
  if (!correction_)
    speeds_.learn(prediction.profile_stage_ms, measured_stage_ms(plan_.stages.size(), events));
  else if (correction_->tracking())
    correct(iteration, events, step_ms);
}

void Microbatching::correct(const IterationPlan& iteration,
                            std::span<const observe::TraceEvent> events, double step_ms) {
  const SampleUnits units(iteration.samples, iteration.pieces);
  const auto samples = scheduler::SampleSums(costs_->model, units.shapes()).of(plan_);
  if (!samples.ok()) return;
  correction_->learn(iteration,
                     scheduler::predicted_costs(plan_, samples.value(), costs_->options).task_ms,
                     StageShares(plan_, samples.value(), units.shapes()), events, step_ms);
}

}  // namespace troupe::engine
