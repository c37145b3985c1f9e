// OrchMLLM's evaluation (section 8) on paper, by the code that plans and simulates jobs: ranks that
// have a replica of both encoders and of the llm each, and draw their own samples.
//
// Work is dealt by `deal_samples` and `spread_within_rooms`, ordered by `plan_iteration`, run by
// `simulate`, at costs of a device that is not here (roofline). Not there: the paper's shards of
// parameters (ZeRO3), which have ranks wait for each other layer by layer; paddings, but where an
// ablation asks for them; sums, updates and bounds of memory. Rows move, inputs do not: nodes
// decode what they need. Deterministic: seeds decide. Not thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/iteration/phase_exchange.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/cost/cost_model.hpp"
#include "scheduler/cost/sample_costs.hpp"
#include "scheduler/simulate/predicted_costs.hpp"
#include "scheduler/simulate/simulate_plan.hpp"

namespace troupe::bench {

/// What layers cost, and how fast links are.
struct PaperCosts {
  scheduler::CostModel model;
  scheduler::PredictionOptions prediction;
};

/// Of `experiments/orchmllm/NAME.toml` on the device and network of `table` (section-8.json). Run
/// from the repository's root.
///
/// Errors: as `job::load_job`, `engine::prepare`, `find_device` and `CostModel::create`.
Result<PaperCosts> paper_costs(const std::string& name, const nlohmann::json& table);

/// Which phases are balanced, and what of the paper's dispatcher is left out.
struct Ablation {
  std::string name;
  bool vision = true, audio = true, llm = true;  ///< Others stay as they were drawn.
  bool node_wise = true;  ///< False: encoders' samples are dealt as if nodes made no difference.
  /// False: encoded rows go back to who drew the sample, where its connector (the projector) runs,
  /// and from there to the llm.
  bool composed = true;
  bool padded_sounds = false;  ///< As in print; else packed, as Troupe has them.
  /// Encoders that are dealt by the rule for padded batches (algorithm 2), else by sums of work. Of
  /// these no batch is placed on a node.
  bool vision_as_padded = false, audio_as_padded = false;
};

/// The ablations of section 8.3 and of each phase, that of all three phases balanced last.
std::vector<Ablation> ablations();

/// With sounds that are padded as in print: no phase balanced; one rule for both encoders (Figure
/// 11), each in turn; each encoder by its own rule, last.
std::vector<Ablation> padded_ablations();

struct StepOfRanks {
  double step_ms = 0;
  double utilization = 0;  ///< Of the device's peak rate, in percent; paddings count as idle.
  double forward_ms = 0;   ///< Until a rank is through with its forwards, on average (Table 2).
};

/// When devices end the last forward of a step that was simulated with its events, on average.
double forward_ms(const IterationPlan& iteration, const scheduler::SimulatedStep& step);

struct AblatedStep {
  StepOfRanks alone;           ///< Ranks wait for rows that they take.
  StepOfRanks in_groups;       ///< Besides for the ranks of their group (group_waits.hpp).
  double vision_far_rows = 0;  ///< Share of the rows that leave a node; 0 where not composed.
  double audio_far_rows = 0;   ///< The same.
};

/// One global batch: as many samples as ranks times the mini-batch.
class AblationRanks {
 public:
  /// `costs` outlives this; `model`: its entry of `models` in `table`.
  /// Errors: as `SampleSums::of`.
  static Result<AblationRanks> create(const PaperCosts& costs, const nlohmann::json& table,
                                      const nlohmann::json& model, std::size_t ranks,
                                      std::size_t mini_batch, std::uint64_t seed);

  /// Errors: as `deal_samples`, `deal_for_paddings`, `plan_iteration` and `simulate`.
  Result<AblatedStep> step(const Ablation& ablation) const;

 private:
  AblationRanks(const PaperCosts& costs, const nlohmann::json& table, std::size_t ranks,
                std::vector<SampleShape> samples)
      : costs_(&costs),
        ranks_(ranks),
        per_node_(table.at("ranks_per_node").get<std::size_t>()),
        group_size_(table.at("hybrid_group").get<std::size_t>()),
        samples_(std::move(samples)) {}

  /// Replicas of all groups on every rank, so many ranks to a node.
  ParallelPlan layout(bool composed, std::size_t per_node) const;
  /// Samples of each rank as they were drawn.
  std::vector<std::vector<std::int32_t>> drawn() const;
  /// Samples of each rank for the llm. Errors: as `deal_samples`.
  Result<std::vector<MicrobatchList>> dealt(const engine::PhaseWork& llm) const;
  /// Per replica of the plan. Errors: as `deal_samples` and `deal_for_paddings`.
  Result<std::vector<MicrobatchList>> microbatches(const Ablation& ablation,
                                                   const ParallelPlan& plan,
                                                   std::span<const engine::PhaseWork> works) const;

  const PaperCosts* costs_;
  std::size_t ranks_, per_node_, group_size_;
  std::vector<SampleShape> samples_;
  scheduler::SampleCosts sample_costs_;
};

}  // namespace troupe::bench
