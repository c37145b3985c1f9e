// How `Microbatching` cuts a batch that is dealt to pipelines.

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "balancer/ranks/replica_assignment.hpp"
#include "engine/iteration/cut_balance.hpp"
#include "engine/iteration/have_room.hpp"
#include "engine/iteration/microbatching.hpp"
#include "engine/iteration/phase_replicas.hpp"
#include "engine/iteration/pipeline_costs.hpp"
#include "engine/iteration/pipeline_speeds.hpp"
#include "engine/iteration/planning_budget.hpp"
#include "runtime/policies/registry.hpp"
#include "runtime/vocabulary/index.hpp"
#include "scheduler/layout/step_estimator.hpp"
#include "scheduler/simulate/llm_cap.hpp"
#include "scheduler/simulate/memory_bounds.hpp"

namespace troupe::engine {

namespace {

// Largest over mean load of a phase that is left as it is, although some samples could go in
// pieces.
constexpr double kEvenEnough = 1.02;

constexpr double kImpossible = std::numeric_limits<double>::infinity();

/// Of an llm replica among all of them, which stand ascending.
std::size_t place_of(std::span<const ReplicaId> llms, ReplicaId llm) {
  return static_cast<std::size_t>(std::ranges::lower_bound(llms, llm) - llms.begin());
}

/// Forward of a microbatch on a replica's busiest device, as its stages work side by side; by
/// samples and layers where no costs are known.
double forward_load(const ParallelPlan& plan, const BatchWork& work, ReplicaId replica,
                    const Microbatch& microbatch) {
  std::map<DeviceId, double> loads;
  double busiest = 0;
  for (const StageId stage : plan.at(replica).stages) {
    double load = 0, layers = 0;
    for (const LayerRun& run : plan.at(stage).runs) layers += run.layers.size();
    for (const Part& part : microbatch.parts)
      load += work.costs.task_ms
                  ? work.costs.task_ms(stage, part.samples, scheduler::TaskKind::forward)
                  : layers * static_cast<double>(part.samples.size());
    for (const DeviceId device : plan.at(stage).devices) {
      const double times = times_of(work.times, plan.devices[device.index()].node);
      busiest = std::max(busiest, loads[device] += times * load);
    }
  }
  return busiest;
}

/// Whether a phase has room as it was cut; `lists`: of its replicas.
bool may_keep(std::span<const MicrobatchList> lists, const PhaseWork& phase,
              std::span<const LlmCut> cuts, const scheduler::Schedule& schedule) {
  return phase.room_shares.empty() ||
         have_room(lists, encoded_for(cuts, phase), phase, scheduler::has_phases(schedule));
}

/// Per stage: the bytes that encoders have for what an exchange gives them.
std::vector<double> encoder_rooms(const ParallelPlan& plan, const scheduler::SimulationCosts& costs,
                                  Bytes device_memory, const scheduler::Schedule& schedule,
                                  std::span<const LlmCut> cuts) {
  if (scheduler::has_phases(schedule))  // There they divide the room by windows.
    return scheduler::microbatch_rooms(plan, costs, device_memory);
  std::vector<MicrobatchList> lists(plan.replicas.size());
  for (const LlmCut& own : cuts) lists[own.llm.index()] = own.cut.llm;
  return scheduler::rooms_beside_llm(plan, costs, device_memory, lists);
}

}  // namespace

/// What one llm replica trains, with the encoders that feed it.
struct Microbatching::Share {
  PipelineId pipeline;
  ReplicaId llm;
  std::vector<std::int32_t> samples;  ///< Ascending.
  bool is_whole = true;               ///< The pipeline has one replica of each group.
  std::int64_t stages = 0;            ///< Of the llm replica and one replica of each other group.
};

/// The cuts of a batch, each made once: ways that differ in how encoders share it out alone have
/// the same.
class Microbatching::Cuts {
 public:
  /// Of all llm replicas, pipeline by pipeline, and what there is to say of them.
  struct Made {
    std::vector<LlmCut> cuts;
    Prediction prediction;
  };

  Cuts(const Microbatching& planner, const DealtBatch& batch, const Work& work,
       const SampleUnits& units, Exchange exchange)
      : planner_(planner),
        batch_(batch),
        work_(work),
        units_(units),
        shares_(shares_of_all(exchange)) {}

  const SampleUnits& units() const { return units_; }  ///< Of the batch, for all orders of it.

  /// `way`: by the exchange of these. Errors: as `balancer::assign_microbatches`.
  const Result<Made>& by(const Way& way) {
    const std::pair key(way.policy, way.shared_microbatches);
    const auto known = made_.find(key);
    return known != made_.end() ? known->second : made_.emplace(key, make(way)).first->second;
  }

 private:
  Result<std::vector<Share>> shares_of_all(Exchange exchange) const {
    std::vector<Share> all;
    for (std::size_t p = 0; p < batch_.pipelines.size(); ++p) {
      auto own = planner_.shares_of(batch_, work_, PipelineId{p}, exchange);
      if (!own.ok()) return std::move(own).error();
      std::ranges::move(own.value(), std::back_inserter(all));
    }
    return all;
  }

  Result<Made> make(const Way& way) const {
    if (!shares_.ok()) return shares_.error();
    Made made;
    Prediction& prediction = made.prediction;
    if (const auto* correction = planner_.corrections())
      prediction.corrected_shapes = static_cast<std::int64_t>(correction->corrected_shapes());
    prediction.work.resize(batch_.pipelines.size());
    prediction.exchanged = way.exchange != Exchange::off;
    for (const Share& share : shares_.value()) {
      auto& cut = made.cuts.emplace_back(LlmCut{share.llm, {}}).cut;
      if (share.samples.empty()) continue;
      auto plan = planner_.cut(batch_, work_, share, way);
      if (!plan.ok()) return std::move(plan).error();
      note_cut(batch_.samples, work_, share.samples, plan.value(), planner_.options_.microbatches,
               prediction.work[share.pipeline.index()], prediction);
      cut = parts_of(plan.value(), share.samples, batch_.samples, planner_.splits_parts_);
    }
    return made;
  }

  const Microbatching& planner_;
  const DealtBatch& batch_;
  const Work& work_;
  const SampleUnits& units_;
  const Result<std::vector<Share>> shares_;  ///< Of all pipelines.
  std::map<std::pair<std::string, std::optional<std::int64_t>>, Result<Made>> made_;
};

std::shared_ptr<Microbatching::Cuts> Microbatching::cuts_of(const DealtBatch& batch,
                                                            const Work& work,
                                                            const SampleUnits& units,
                                                            Exchange exchange) const {
  return std::make_shared<Cuts>(*this, batch, work, units, exchange);
}

Result<PredictedIteration> Microbatching::plan_one(const DealtBatch& batch,
                                                   std::shared_ptr<const Work> work, Cuts& cuts,
                                                   const Way& way) const {
  const auto& cut = cuts.by(way);
  if (!cut.ok()) return cut.error();
  Prediction prediction = cut.value().prediction;
  auto dealt = deal_cuts(*work, cut.value().cuts, way, prediction);
  if (!dealt.ok()) return std::move(dealt).error();
  auto made = finish(batch, cuts.units(), work, std::move(dealt).value(), prediction);
  const bool is_bounded = way.exchange != Exchange::off && bounds_memory();
  const auto lacks_room = [&] {
    if (!made.ok()) return made.error().code == Errc::infeasible && options_.max_in_flight == 0;
    // A bound on microbatches in flight is none on what one keeps.
    return options_.max_in_flight > 0 &&
           !scheduler::memory_bounds(plan_, work->bound_costs, costs_->device_memory,
                                     made.value().iteration.microbatches, options_.schedule,
                                     *work->flow, cuts.units())
                .ok();
  };
  if (!is_bounded || !lacks_room()) return made;
  // Memory hardly ever binds, so steps are dealt by work alone first.
  Work bounded = *work;
  bound_rooms(plan_, work->bound_costs,
              encoder_rooms(plan_, work->bound_costs, costs_->device_memory, options_.schedule,
                            cut.value().cuts),
              bounded.phases);
  auto fitted = deal_cuts(bounded, cut.value().cuts, way, prediction);
  if (!fitted.ok()) return std::move(fitted).error();
  return finish(batch, cuts.units(), std::move(work), std::move(fitted).value(),
                std::move(prediction));
}

std::vector<balancer::Workload> Microbatching::weights_for(
    Exchange exchange, std::vector<balancer::Workload> weights) {
  if (exchange != Exchange::off)
    for (auto& weight : weights) weight.encoder_ms = weight.llm_ms;
  return weights;
}

std::optional<double> Microbatching::llm_cap(const Work& work, const Share& share,
                                             double llm_ms) const {
  if (!bounds_memory()) return std::nullopt;
  return scheduler::llm_cap_ms(plan_, work.bound_costs, work.rooms_in_flight, share.llm,
                               share.samples, llm_ms);
}

Result<std::vector<Microbatching::Share>> Microbatching::shares_of(const DealtBatch& batch,
                                                                   const Work& work,
                                                                   PipelineId pipeline,
                                                                   Exchange exchange) const {
  std::vector<Share> shares;
  std::int64_t stages_before = 0;
  ModuleGroupId group;
  for (const ReplicaId replica : plan_.at(pipeline).replicas) {
    if (plan_.is_llm(replica))
      shares.push_back({pipeline, replica, {}, true, std::ssize(plan_.at(replica).stages)});
    else if (plan_.at(replica).group != group)
      stages_before += std::ssize(plan_.at(replica).stages);
    group = plan_.at(replica).group;
  }
  const bool is_whole = plan_.at(pipeline).replicas.size() == plan_.module_groups.size();
  for (Share& share : shares) share.is_whole = is_whole, share.stages += stages_before;
  const auto& own = batch.pipelines[pipeline.index()];
  if (shares.size() == 1) return shares.front().samples = own, shares;
  std::vector<double> ms_per_work, speeds;  // For a unit of llm work, per share.
  for (const Share& share : shares) {
    ms_per_work.push_back(work.phases.back().shares[place_of(llms_, share.llm)]);
    speeds.push_back(1 / ms_per_work.back());
  }
  const auto weights = weights_for(exchange, pick(work.workloads, own));
  const bool pairs = options_.dealing == "work" && exchange == Exchange::off;
  auto spread = pairs ? balancer::assign_replicas(weights, speeds)
                      : deal_samples(options_.dealing, weights, ms_per_work);
  if (!spread.ok()) return std::move(spread).error();
  for (std::size_t s = 0; s < shares.size(); ++s) {
    for (const auto place : spread.value()[s]) shares[s].samples.push_back(own[at(place)]);
    std::sort(shares[s].samples.begin(), shares[s].samples.end());
  }
  return shares;
}

Result<balancer::MicrobatchPlan> Microbatching::assign(
    const DealtBatch& batch, const Work& work, const Share& share, const Way& way,
    const std::function<const PipelineCosts&()>& alone,
    std::span<const balancer::Workload> weights) const {
  balancer::PolicyOptions options;
  options.microbatches = options_.microbatches;
  options.shared_microbatches = way.shared_microbatches;
  // A stream of its own for each llm replica of the job.
  options.seed = options_.seed + 0x9E3779B97F4A7C15U * static_cast<std::uint64_t>(batch.step) +
                 place_of(llms_, share.llm);
  options.pipeline_stages = share.stages;
  options.evaluations_max = options_.evaluations;
  const auto total = balancer::total(weights);
  options.llm_cap_ms = llm_cap(work, share, total.llm_ms);
  if (options.llm_cap_ms && *options.llm_cap_ms <= 0)
    return Error{Errc::infeasible,
                 "a device of pipeline " + std::to_string(share.pipeline.value) +
                     " has no room for activations: its stages' parameters, gradients and "
                     "optimizer, and what encoders keep there, fill it",
                 "cluster.device_memory_gib", "raise it, or cut the llm into more stages"};
  const auto stages = static_cast<double>(options.pipeline_stages);
  if (costs_)
    options.work_max = portfolio_work((total.encoder_ms + total.llm_ms) / stages,
                                      static_cast<double>(llms_.size()), way.is_compared);
  std::optional<scheduler::StepEstimator> estimator;
  if (alone) {
    options.cost = [&](const balancer::MicrobatchPlan& plan) { return alone().step_ms(plan); };
    if (way.policy == "auto") estimator = alone().estimator(total);
    if (estimator)
      options.estimate = [&](std::span<const balancer::Workload> loads) {
        std::vector<scheduler::ModuleWork> microbatches;
        for (const auto& load : loads) microbatches.push_back({load.encoder_ms, load.llm_ms});
        return (*estimator)(microbatches);
      };
    options.costing_work = costing_work({static_cast<double>(weights.size()), stages, 1,
                                         static_cast<double>(options_.microbatches)});
  }
  auto made = policies::run_policy(way.policy, weights, options);
  if (made.ok() || made.error().code != Errc::infeasible || !options.llm_cap_ms) return made;
  Error error = std::move(made).error();
  error.message += "; the cap is what the memory of the llm's devices has room for";
  error.where = "cluster.device_memory_gib";
  error.fix = "raise it or train.microbatches, or cut the llm into more stages";
  if (options_.policy != "auto") error.fix += "; balancer.policy = \"auto\" looks for other plans";
  return error;
}

Result<balancer::MicrobatchPlan> Microbatching::cut(const DealtBatch& batch, const Work& work,
                                                    const Share& share, const Way& way) const {
  const auto& own = share.samples;
  std::optional<PipelineCosts> costs;  // They copy layout and samples; most policies never ask.
  std::function<const PipelineCosts&()> alone;
  if (work.costs.task_ms && share.is_whole)
    alone = [&]() -> const PipelineCosts& {
      if (!costs)
        costs.emplace(plan_,
                      PipelineRules{share.pipeline, options_.schedule, options_.microbatches,
                                    in_flight_bounds(), splits_parts_, options_.boundary},
                      work.costs, own, batch.samples);
      return *costs;
    };
  const auto weights = pick(work.workloads, own), profile = pick(work.profile, own);
  auto corrected = assign(batch, work, share, way, alone, weights);
  if (weights == profile || !alone) return corrected;
  // Memory is proportional to the profile's work, so that is what a cap is checked by.
  const auto cap = llm_cap(work, share, balancer::total(profile).llm_ms);
  const auto cost = [&](const Result<balancer::MicrobatchPlan>& plan) {
    if (!plan.ok()) return kImpossible;
    const auto loads = balancer::group_loads(profile, plan.value().llm);
    if (cap && balancer::llm_spread(loads).max_ms > *cap) return kImpossible;
    return alone().step_ms(plan.value());
  };
  const double corrected_ms = cost(corrected);
  // `auto` has already looked at many plans by their corrected costs.
  if (way.policy == "auto" && corrected_ms < kImpossible) return corrected;
  auto plain = assign(batch, work, share, way, alone, profile);
  return corrected_ms <= cost(plain) && corrected_ms < kImpossible ? std::move(corrected)
                                                                   : std::move(plain);
}

Result<std::vector<MicrobatchList>> Microbatching::deal_cuts(const Work& work,
                                                             const std::vector<LlmCut>& cuts,
                                                             const Way& way,
                                                             Prediction& prediction) const {
  prediction.exchanged_phases.assign(plan_.module_groups.size(), false);
  const auto load_of = [&](ReplicaId replica, const Microbatch& microbatch) {
    return forward_load(plan_, work, replica, microbatch);
  };
  std::vector<MicrobatchList> microbatches(plan_.replicas.size());
  auto cut = cuts.begin();  // They stand pipeline by pipeline.
  for (std::size_t p = 0; p < plan_.pipelines.size(); ++p) {
    std::vector<scheduler::ReplicaCut> own;
    for (; cut != cuts.end() && plan_.at(cut->llm).pipeline == PipelineId{p}; ++cut)
      own.push_back(cut->cut);
    scheduler::deal_microbatches(plan_, PipelineId{p}, std::move(own), load_of, microbatches);
  }
  if (way.exchange == Exchange::off) return microbatches;
  for (std::size_t g = 0; g + 1 < plan_.module_groups.size(); ++g) {
    const auto replicas = replicas_of(plan_, ModuleGroupId{g});
    if (replicas.size() < 2) continue;
    std::vector<MicrobatchList> drawn;
    for (const ReplicaId replica : replicas) drawn.push_back(microbatches[replica.index()]);
    const bool may_stay = may_keep(drawn, work.phases[g], cuts, options_.schedule);
    auto made = spread_out(ModuleGroupId{g}, work, cuts, way);
    if (!made.ok() && !may_stay) return std::move(made).error();
    if (!made.ok()) {
      if (!prediction.exchange_refused) prediction.exchange_refused = made.error();
      prediction.refused_phases.emplace(g, std::move(made).error());
      continue;
    }
    auto& spread = made.value();
    // Post-balancing never makes it worse, and moves no rows for nothing.
    const double load = may_stay ? largest_load(drawn, work.phases[g]) : kImpossible;
    if (!(largest_load(spread, work.phases[g]) < load * (1 - kSumRounding))) continue;
    prediction.exchanged_phases[g] = true;
    for (std::size_t r = 0; r < replicas.size(); ++r)
      microbatches[replicas[r].index()] = std::move(spread[r]);
  }
  const auto& phases = prediction.exchanged_phases;
  if (prediction.exchange_refused && std::count(phases.begin(), phases.end(), true) == 0)
    prediction.exchanged = false;
  return microbatches;
}

Result<std::vector<MicrobatchList>> Microbatching::spread_out(ModuleGroupId group, const Work& work,
                                                              const std::vector<LlmCut>& cuts,
                                                              const Way& way) const {
  const PhaseWork& phase = work.phases[group.index()];
  SpreadRules rules{splits_parts_, false, way.at_once, scheduler::has_phases(options_.schedule)};
  auto whole = spread_within_rooms(plan_, group, cuts, phase, rules);
  if (phase.cut.empty()) return whole;
  std::int64_t rounds = 1;
  for (const LlmCut& cut : cuts) rounds = std::max(rounds, std::ssize(cut.cut.encoder));
  // There are as many rounds as pieces allow, so a whole giant may hold one up.
  const auto encoders = std::span(work.phases).first(work.phases.size() - 1);
  const bool holds_up = !way.at_once && shared_microbatches(encoders, rounds, false) < rounds;
  const double load = whole.ok() ? largest_load(whole.value(), phase) : kImpossible;
  // Pieces are more messages, and are decoded with the rest of their sample.
  if (!holds_up && !(load > kEvenEnough * even_load(phase))) return whole;
  rules.in_pieces = true;
  auto in_pieces = spread_within_rooms(plan_, group, cuts, phase, rules);
  if (!in_pieces.ok()) return whole;
  const double of_pieces = largest_load(in_pieces.value(), phase);
  return of_pieces < load || (holds_up && of_pieces <= kEvenEnough * load) ? std::move(in_pieces)
                                                                           : std::move(whole);
}

}  // namespace troupe::engine
