// Estimates of layouts in phases beside the steps of the same layouts: both divide a device's room
// alike, rows between encoders and llm included.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "scheduler/iteration/iteration_graph.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/layout/layout_candidates.hpp"
#include "scheduler/layout/layout_estimate.hpp"
#include "scheduler/layout/replica_candidates.hpp"
#include "scheduler/layout/replica_shapes.hpp"
#include "scheduler/simulate/memory_bounds.hpp"
#include "scheduler/simulate/room_demands.hpp"
#include "tests/scheduler/layout_requests.hpp"

namespace troupe::scheduler {
namespace {

using testing::layers;

constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr std::int32_t kBatch = 16;

/// vision (2) -> projector (1) -> llm (4); rows of 2, 3, 4 and 4 elements, 8, 12 and 16 bytes. A
/// sample is a row everywhere, one byte of activations in each layer, a microbatch of its own. Four
/// nodes of one device. Where encoders move, it is 64 rows in vision, whose activations then are in
/// host memory while the llm computes, as parameters of both encoders.
struct Pictured {
  ModelGraph graph;
  CostModel model;
  AutoLayoutRequest request;

  Pictured(bool frozen, bool moves)
      : graph(make_graph(frozen, moves)), model(testing::model_of(graph, {1, 2, 1, 4, 3})) {
    SampleShape sample;
    const std::int32_t rows = moves ? 64 : 1;
    sample.media = {{ModuleId{0}, {{rows, rows, 1, 1, 1}}}};
    sample.llm_tokens = sample.trained_tokens = 1;
    request.model = &model;
    request.samples = {sample};
    request.cluster = {4, 1};
    request.global_batch = request.microbatches = kBatch;
    request.schedule = "three-phase";
    request.offload_encoders = moves;
  }
  Pictured(const Pictured&) = delete;
  Pictured& operator=(const Pictured&) = delete;

  static ModelGraph make_graph(bool frozen, bool moves) {
    ModelGraph graph;
    graph.modules = {
        {"vision", ModuleKind::encoder, frozen, {ModuleId{1}}, layers("vision", 2), 2, 3},
        {"projector", ModuleKind::projector, frozen, {ModuleId{2}}, layers("projector", 1), 3, 4},
        {"llm", ModuleKind::llm, false, {}, layers("llm", 4), 4, 4}};
    for (const std::size_t encoder : {0, 1}) graph.modules[encoder].parameters_in_host = moves;
    return graph;
  }

  /// What memory costs the step of a layout whose windows stay apart; nothing where a microbatch
  /// alone is too much.
  std::optional<PhaseMemory::Pace> pace_of(const ParallelPlan& plan) const {
    const auto samples = draw_batch(request.samples, kBatch, request.seed);
    const auto lists = assign_by_count(plan, kBatch, kBatch);
    const auto flow = std::make_shared<const RowFlow>(plan.model, samples);
    const SampleUnits units(samples, {});
    const auto apart = window_sets(plan, *flow, units, lists);
    REQUIRE(std::ranges::all_of(apart, [](const WindowSet& set) { return set.least_width == 1; }));
    auto costs = predicted_costs(plan, model, samples, request.prediction).value();
    if (request.offload_encoders) costs = with_offloading(std::move(costs), plan, flow);
    const auto bounds = memory_bounds(plan, with_arriving_rows(costs, plan, flow),
                                      request.device_memory, lists, request.schedule, *flow, units);
    if (!bounds.ok()) return std::nullopt;
    const auto depths = stage_depths(plan);
    PhaseMemory::Pace pace;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      const auto count = static_cast<double>(lists[plan.stages[s].replica.index()].size());
      const double bound = bounds.value()[s];
      if (plan.is_llm(StageId{s}))
        pace.held_back = std::max(pace.held_back, std::min<double>(depths[s], count) / bound);
      else
        pace.windows = std::max(pace.windows, std::ceil(count / bound));
    }
    return pace;
  }
};

/// How many layouts were compared, and in how many memory binds.
struct Compared {
  int all = 0, windows = 0, held_back = 0;

  void add(const PhaseMemory::Pace& estimated, const std::optional<PhaseMemory::Pace>& step) {
    if (!step) return;
    CHECK(estimated.windows == step->windows);
    CHECK(estimated.held_back == step->held_back);
    ++all;
    windows += step->windows > 1 ? 1 : 0;
    held_back += step->held_back > 1 ? 1 : 0;
  }
  void check_enough() const {
    INFO(all << " layouts, " << windows << " in windows, " << held_back << " held back");
    CHECK(all > 20);  // Else the test says little.
    CHECK(windows > 10);
    CHECK(held_back > 0);
  }
};

/// Calls `compare` for trained and frozen encoders, such that move and such that stay, and for
/// sizes of devices from too small ones on.
template <class Compare>
void for_each_memory(Compare compare) {
  for (const bool frozen : {false, true})
    for (const bool moves : {false, true}) {
      Pictured made(frozen, moves);
      for (std::int64_t bytes = 340; bytes < 1400; bytes += bytes < 1000 ? 4 : 50) {
        INFO(bytes << " bytes" << (frozen ? ", encoders frozen" : "") << (moves ? ", moving" : ""));
        made.request.device_memory = Bytes{bytes};
        LayoutScorer scorer(made.request);
        compare(made, scorer);
      }
    }
}

TEST_CASE("estimates of replicas in phases have the windows of their steps",
          "[scheduler][property]") {
  Compared compared;
  for (const Sharing sharing : {Sharing::colocated, Sharing::disjoint})
    for_each_memory([&](const Pictured& made, LayoutScorer& scorer) {
      const auto candidates = replica_candidates(made.request, scorer, sharing, 4, kAny);
      if (!candidates.ok()) return;
      for (const LayoutCandidate& candidate : candidates.value()) {
        // Dealt evenly, as the estimate has it.
        if (std::ranges::any_of(candidate.numbers, [](auto n) { return kBatch % n != 0; }))
          continue;
        INFO(candidate.numbers.front() << " encoders, " << candidate.numbers.back() << " llms");
        const auto held =
            held_by_replicas(candidate, made.graph.llm(), kBatch / candidate.numbers.back(),
                             made.request.device_memory);
        compared.add(held.pace(), made.pace_of(place(made.request, candidate).value().plan));
      }
    });
  compared.check_enough();
}

TEST_CASE("estimates of pipelines in phases have the windows of their steps",
          "[scheduler][property]") {
  Compared compared;
  for_each_memory([&](const Pictured& made, LayoutScorer& scorer) {
    const auto candidates = layout_candidates(made.request, scorer, 4, kAny);
    if (!candidates.ok()) return;
    for (const LayoutCandidate& candidate : candidates.value()) {
      if (kBatch % candidate.pipelines() != 0) continue;
      INFO(candidate.pipelines() << " pipelines, " << describe(candidate.shapes.front().form));
      const LayoutEstimate estimate(made.request, candidate.weights, candidate.pipelines());
      PhaseMemory::Pace slowest;
      for (const PipelineShape& shape : candidate.shapes) {
        const auto pace = estimate.held_in_phases(shape).pace();
        slowest.windows = std::max(slowest.windows, pace.windows);
        slowest.held_back = std::max(slowest.held_back, pace.held_back);
      }
      compared.add(slowest, made.pace_of(place(made.request, candidate).value().plan));
    }
  });
  compared.check_enough();
}

}  // namespace
}  // namespace troupe::scheduler
