#include "tests/bench/exact_rows.hpp"

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "balancer/loads/cbc_solver.hpp"
#include "engine/iteration/phase_exchange.hpp"

namespace troupe::bench {

namespace {

using engine::LlmCut;
using engine::PhaseWork;

constexpr std::size_t kNodes = 4, kSamples = 32;
constexpr double kPatienceMs = 30'000;

/// Replicas of the encoder, then those of the llm; one of each on every node.
ParallelPlan nodes() {
  ParallelPlan plan;
  const ModuleId llm{1};
  plan.model.modules = {{"vision", ModuleKind::encoder, false, {llm}, {{"vision.0", 1}}, 1, 1},
                        {"llm", ModuleKind::llm, false, {}, {{"llm.0", 1}}, 1, 1}};
  plan.pipelines.resize(kNodes);
  for (std::size_t n = 0; n < kNodes; ++n) plan.devices.push_back({NodeId{n}, 0});
  for (std::size_t group = 0; group < 2; ++group) {
    plan.module_groups.push_back({plan.model.modules[group].name, {ModuleId{group}}});
    for (std::size_t n = 0; n < kNodes; ++n) {
      const ReplicaId replica{plan.replicas.size()};
      plan.pipelines[n].replicas.push_back(replica);
      plan.replicas.push_back({ModuleGroupId{group}, PipelineId{n}, {StageId{plan.stages.size()}}});
      plan.stages.push_back({replica, {{ModuleId{group}, {0, 1}}}, {DeviceId{n}}});
    }
  }
  return plan;
}

/// The least rows that leave their node where none ends after `end`.
double least_rows(const PhaseWork& work, std::span<const std::size_t> wanted, double end) {
  using Program = balancer::LinearProgram;
  Program program;
  std::vector<std::vector<Program::Term>> loads(kNodes);
  for (std::size_t s = 0; s < work.samples.size(); ++s) {
    if (!(work.samples[s] > 0)) continue;
    std::vector<Program::Term> once;
    for (std::size_t n = 0; n < kNodes; ++n) {
      const auto column = program.add_column(n == wanted[s] ? 0 : work.rows[s], 0, 1, true);
      once.push_back({column, 1});
      loads[n].push_back({column, work.samples[s]});
    }
    program.add_row(std::move(once), Program::Sense::equal, 1);
  }
  for (auto& load : loads)
    program.add_row(std::move(load), Program::Sense::at_most, end * (1 + engine::kSumRounding));
  // A second, which is usual here, ends before on a busy machine, with a weaker bound.
  const auto solved = balancer::solve_program(program, {.time_ms = kPatienceMs});
  if (!solved.ok()) throw std::runtime_error(to_string(solved.error()));
  return solved.value().bound;
}

}  // namespace

SmallBatches small_batches(double spread, std::size_t batches) {
  std::mt19937_64 random(22);
  const auto plan = nodes();
  SmallBatches mean;
  for (std::size_t b = 0; b < batches; ++b) {
    PhaseWork work;
    work.shares.assign(kNodes, 1);
    std::lognormal_distribution<double> size(0, spread);
    std::vector<std::size_t> wanted;
    std::vector<std::vector<std::int32_t>> own(kNodes);
    double rows = 0;
    for (std::size_t s = 0; s < kSamples; ++s) {
      work.samples.push_back(s % 2 == 0 ? size(random) : 0);
      rows += work.samples.back();
      wanted.push_back(random() % kNodes);
      own[wanted.back()].push_back(static_cast<std::int32_t>(s));
    }
    work.rows = work.samples;
    std::vector<LlmCut> cuts;
    for (std::size_t n = 0; n < kNodes; ++n) {
      const MicrobatchList list{Microbatch{{Part{own[n]}}}};
      cuts.push_back({ReplicaId{kNodes + n}, {list, list}});
    }
    auto lists = spread_within_rooms(plan, ModuleGroupId{0}, cuts, work, {.at_once = true}).value();
    const double end = largest_load(lists, work);
    for (const LlmCut& cut : cuts) lists.push_back(cut.cut.llm);
    const auto far = far_rows(plan, ModuleGroupId{0}, lists, work);
    const auto part = 1 / static_cast<double>(batches);
    mean.planned += part * far.planned;
    mean.divisible += part * far.bound;
    mean.exact += part * least_rows(work, wanted, end) / rows;
  }
  return mean;
}

}  // namespace troupe::bench
