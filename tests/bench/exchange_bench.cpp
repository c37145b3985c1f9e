// Planning time of what balances every phase over replicas, at the size of OrchMLLM's largest
// cluster: 2,560 ranks of 80 samples, each with a replica of two encoders and of the llm. How even
// phases are then, beside other ways to deal, and what the rows between ranks add to a step.

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>

#include "balancer/ranks/replica_assignment.hpp"
#include "engine/iteration/phase_exchange.hpp"
#include "engine/iteration/pipeline_speeds.hpp"
#include "tests/bench/boundary_overhead.hpp"
#include "tests/bench/exact_rows.hpp"
#include "tests/bench/measure.hpp"

using namespace troupe;
using namespace troupe::engine;

namespace {

constexpr std::size_t kRanks = 2560, kSamplesPerRank = 80, kMicrobatches = 4;

constexpr std::size_t kRanksPerNode = 8;

/// Replicas of two encoders and the llm on every rank, a stage each.
ParallelPlan ranks() {
  ParallelPlan plan;
  const ModuleId llm{2};
  plan.model.modules = {{"vision", ModuleKind::encoder, false, {llm}, {{"vision.0", 1}}, 1, 1},
                        {"audio", ModuleKind::encoder, false, {llm}, {{"audio.0", 1}}, 1, 1},
                        {"llm", ModuleKind::llm, false, {}, {{"llm.0", 1}}, 1, 1}};
  for (std::size_t group = 0; group < 3; ++group)
    plan.module_groups.push_back({plan.model.modules[group].name, {ModuleId{group}}});
  for (std::size_t p = 0; p < kRanks; ++p) {
    Pipeline& pipeline = plan.pipelines.emplace_back();
    plan.devices.push_back(
        {NodeId{p / kRanksPerNode}, static_cast<std::int32_t>(p % kRanksPerNode)});
    for (std::size_t group = 0; group < 3; ++group) {
      const ReplicaId replica{plan.replicas.size()};
      pipeline.replicas.push_back(replica);
      plan.replicas.push_back({ModuleGroupId{group}, PipelineId{p}, {StageId{plan.stages.size()}}});
      plan.stages.push_back({replica, {{ModuleId{group}, {0, 1}}}, {DeviceId{p}}});
    }
  }
  return plan;
}

/// Work of a phase: a share of the samples has none, the others' is log-normal.
PhaseWork draw(std::mt19937_64& random, double share, double spread) {
  PhaseWork work;
  std::lognormal_distribution<double> size(0, spread);
  std::bernoulli_distribution has(share);
  for (std::size_t s = 0; s < kRanks * kSamplesPerRank; ++s)
    work.samples.push_back(has(random) ? size(random) : 0);
  work.rows = work.samples;  // As work without attention has them.
  work.shares.assign(kRanks, 1);
  return work;
}

/// Each rank's samples in runs of as many.
std::vector<LlmCut> cut(const balancer::SampleGroups& groups) {
  std::vector<LlmCut> cuts;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    LlmCut& made = cuts.emplace_back(LlmCut{ReplicaId{3 * r + 2}, {}});
    for (std::size_t m = 0; m < kMicrobatches; ++m) {
      const auto at = [&](std::size_t part) {
        return groups[r].begin() +
               static_cast<std::ptrdiff_t>(part * groups[r].size() / kMicrobatches);
      };
      const Microbatch microbatch{{{{at(m), at(m + 1)}}}};
      made.cut.encoder.push_back(microbatch);
      made.cut.llm.push_back(microbatch);
    }
  }
  return cuts;
}

/// What all ranks' phases take one after the other, each as long as its busiest rank, over what
/// even phases would: the step of three phases without its pipeline.
double over_even(std::span<const std::vector<double>> loads) {
  double busiest = 0, even = 0;
  for (const auto& phase : loads) {
    busiest += *std::max_element(phase.begin(), phase.end());
    even += std::accumulate(phase.begin(), phase.end(), 0.0) / static_cast<double>(phase.size());
  }
  return busiest / even;
}

using Loads = std::vector<std::vector<double>>;  ///< Per phase and rank.

/// Every phase of a sample where `deal` has it.
Loads all_of(const balancer::SampleGroups& deal, std::span<const PhaseWork* const> works) {
  Loads loads;
  for (const PhaseWork* work : works) {
    auto& phase = loads.emplace_back(deal.size());
    for (std::size_t r = 0; r < deal.size(); ++r)
      for (const auto sample : deal[r]) phase[r] += work->samples[static_cast<std::size_t>(sample)];
  }
  return loads;
}

std::vector<double> loads_of(std::span<const MicrobatchList> lists, const PhaseWork& work) {
  std::vector<double> loads;
  for (const MicrobatchList& list : lists) {
    double& load = loads.emplace_back(0);
    for (const Microbatch& microbatch : list)
      for (const Part& part : microbatch.parts)
        for (const auto sample : part.samples)
          load += work.work_of(static_cast<std::size_t>(sample));
  }
  return loads;
}

/// Every sample whole on one rank, the one with the most of `weight` first, to who has the least:
/// what a heap and longest processing time first do. Who has none of it stays where it was drawn.
balancer::SampleGroups whole_samples(const std::vector<double>& weight) {
  std::vector<balancer::Workload> weights;
  for (const double w : weight) weights.push_back({w, w});
  auto ranks = balancer::assign_replicas(weights, std::vector<double>(kRanks, 1)).value();
  for (auto& rank : ranks)
    std::erase_if(rank, [&](auto s) { return weight[static_cast<std::size_t>(s)] == 0; });
  for (std::size_t s = 0; s < weight.size(); ++s)
    if (weight[s] == 0) ranks[s / kSamplesPerRank].push_back(static_cast<std::int32_t>(s));
  return ranks;
}

/// Per replica of the plan, from the replicas of each encoder.
std::vector<MicrobatchList> of_all_replicas(std::span<const MicrobatchList> vision,
                                            std::span<const MicrobatchList> audio,
                                            std::span<const LlmCut> cuts) {
  std::vector<MicrobatchList> microbatches;
  for (std::size_t r = 0; r < kRanks; ++r) {
    microbatches.push_back(vision[r]);
    microbatches.push_back(audio[r]);
    microbatches.push_back(cuts[r].cut.llm);
  }
  return microbatches;
}

/// What rows between ranks add to a step of 50 ms stages. An encoder of 2B parameters makes some
/// 2,500 rows of 3,584 columns in that time (MLLM-10B of OrchMLLM on an H100).
void print_boundary(const ParallelPlan& plan, std::span<const PhaseWork> works,
                    std::span<const LlmCut> cuts, const std::string& size) {
  constexpr bench::StageSizes kSizes{.stage_ms = 50, .rows = 2500, .columns = 3584};
  scheduler::DeviceSpeeds speeds;
  speeds.node = {0.005, 450};  // NVLink, one way.
  speeds.network = {0.02, 50};
  const auto spread = [&](std::size_t group) {
    return spread_within_rooms(plan, ModuleGroupId{group}, cuts, works[group], {.at_once = true})
        .value();
  };
  const auto step = bench::boundary_step(plan, works, of_all_replicas(spread(0), spread(1), cuts),
                                         kSizes, speeds);
  if (!step.ok()) throw std::runtime_error(to_string(step.error()));
  bench::print("boundary: what a step of 50 ms stages takes longer, three-phase, simulated",
               100 * step.value().overhead(), "%", 1, size);
}

/// How even each phase is, and how many rows leave their node.
void print_phases(const ParallelPlan& plan, std::span<const PhaseWork> works,
                  const std::vector<MicrobatchList>& microbatches, const std::string& size) {
  for (std::size_t g = 0; g < 3; ++g) {
    const auto balance = phase_balance(plan, ModuleGroupId{g}, microbatches, works[g]);
    const std::string& name = plan.module_groups[g].name;
    bench::print(name + ": largest / mean as drawn", balance.drawn, "x", std::nullopt, size);
    bench::print(name + ": largest / mean planned", balance.planned, "x", std::nullopt, size);
    bench::print(name + ": no deal is below", balance.bound, "x", std::nullopt, size);
    if (g == 2) continue;
    const auto far = far_rows(plan, ModuleGroupId{g}, microbatches, works[g]);
    bench::print(name + ": rows between nodes of 8 ranks", far.planned, "of all", far.bound, size);
  }
}

/// What few samples leave of the linear program's bound.
void print_small_batches() {
  for (const auto& [spread, name] : {std::pair(0.5, "0.5"), std::pair(1.0, "1")}) {
    const auto found = bench::small_batches(spread, 16);
    const std::string size =
        std::string("4 nodes, 32 samples, half with work of log-normal spread ") + name;
    const std::string rows = "rows between nodes: ";
    bench::print(rows + "planned / the linear program's, were samples divisible",
                 found.planned / found.divisible, "x", 1.05, size);
    bench::print(rows + "the least of whole samples as even / the same",
                 found.exact / found.divisible, "x", std::nullopt, size);
    bench::print(rows + "planned / the least of whole samples", found.planned / found.exact, "x",
                 std::nullopt, size);
  }
}

}  // namespace

int main() {
  std::mt19937_64 random(5);
  const auto plan = ranks();
  const PhaseWork vision = draw(random, 0.7, 1), audio = draw(random, 0.3, 0.7),
                  llm = draw(random, 1, 0.6);
  std::vector<balancer::Workload> weights;
  for (const double work : llm.samples) weights.push_back({work, work});
  const std::vector<double> alike(kRanks, 1);
  const std::string size = "2560 ranks x 80 samples, 4 rounds";

  balancer::SampleGroups dealt;
  const double deal_ms =
      bench::cpu_ms([&] { dealt = deal_samples("work", weights, alike).value(); }, 3);
  const auto cuts = cut(dealt);
  std::vector<MicrobatchList> lists[2], at_once[2];
  const auto spread_ms = [&](std::size_t group, const PhaseWork& work,
                             std::vector<MicrobatchList>* made, bool together) {
    return bench::cpu_ms(
        [&] {
          made[group] = spread_within_rooms(plan, ModuleGroupId{group}, cuts, work,
                                            {.splits_parts = true, .at_once = together})
                            .value();
        },
        3);
  };
  const double vision_ms = spread_ms(0, vision, lists, false),
               audio_ms = spread_ms(1, audio, lists, false),
               together_ms =
                   spread_ms(0, vision, at_once, true) + spread_ms(1, audio, at_once, true);
  bench::print("samples dealt to llm replicas by work", deal_ms, "ms", std::nullopt, size);
  bench::print("vision spread over its replicas", vision_ms, "ms", std::nullopt, size);
  bench::print("audio spread over its replicas", audio_ms, "ms", std::nullopt, size);
  bench::print("balancing of three phases", deal_ms + vision_ms + audio_ms, "ms", 100, size);
  bench::print("balancing of three phases, rounds at once", deal_ms + together_ms, "ms", 100, size);

  const PhaseWork* works[]{&vision, &audio, &llm};
  balancer::SampleGroups drawn(kRanks);
  std::vector<double> work_of_all;
  for (std::size_t s = 0; s < llm.samples.size(); ++s) {
    drawn[s / kSamplesPerRank].push_back(static_cast<std::int32_t>(s));
    work_of_all.push_back(vision.samples[s] + audio.samples[s] + llm.samples[s]);
  }
  const auto llm_loads = all_of(dealt, works)[2];
  const auto exchanged = [&](std::span<const std::vector<MicrobatchList>> made) {
    return over_even(Loads{loads_of(made[0], vision), loads_of(made[1], audio), llm_loads});
  };
  const std::pair<const char*, double> ways[]{
      {"as drawn", over_even(all_of(drawn, works))},
      {"the llm alone balanced", over_even(all_of(dealt, works))},
      {"vision alone balanced", over_even(all_of(whole_samples(vision.samples), works))},
      {"whole samples by all their work, from a heap",
       over_even(all_of(whole_samples(work_of_all), works))},
      {"each phase, round by round", exchanged(lists)},
      {"each phase, rounds at once", exchanged(at_once)}};
  for (const auto& [name, value] : ways)
    bench::print(std::string("three phases over even ones: ") + name, value, "x", 1, size);

  const std::vector<PhaseWork> phases{vision, audio, llm};
  print_phases(plan, phases, of_all_replicas(lists[0], lists[1], cuts), size);
  print_boundary(plan, phases, cuts, size);
  print_small_batches();
}
