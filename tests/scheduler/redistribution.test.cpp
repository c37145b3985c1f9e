#include "scheduler/iteration/redistribution.hpp"

#include <catch2/catch_test_macros.hpp>
#include <utility>
#include <vector>

#include "runtime/vocabulary/module_rows.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using testing::layers;
using testing::sample;

/// What `module_rows` says of each sample alone.
void check_rows(const ModelGraph& graph, const std::vector<SampleShape>& samples) {
  const RowFlow flow(graph, samples);
  for (std::size_t m = 0; m < graph.modules.size(); ++m)
    for (std::size_t s = 0; s < samples.size(); ++s) {
      const auto index = static_cast<std::int32_t>(s);
      CHECK(flow.output(ModuleId{m}, index) == output_rows(graph, ModuleId{m}, samples[s]));
      CHECK(flow.hidden(ModuleId{m}, index) == hidden_rows(graph, ModuleId{m}, samples[s]));
    }
}

TEST_CASE("rows flow as they do of each sample alone", "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const auto made = testing::random_case(seed);
    check_rows(made.plan.model, made.input.samples);
  }
}

TEST_CASE("a projector has the rows of all that feed it, another one behind it as many",
          "[scheduler]") {
  // vision (4 layers) and audio (3) -> both (1) -> again (1) -> llm (2).
  ModelGraph graph;
  graph.modules = {
      {"vision", ModuleKind::encoder, false, {ModuleId{2}}, layers("vision", 4), 32, 48},
      {"audio", ModuleKind::encoder, false, {ModuleId{2}}, layers("audio", 3), 16, 48},
      {"both", ModuleKind::projector, false, {ModuleId{3}}, layers("both", 1), 48, 48},
      {"again", ModuleKind::projector, false, {ModuleId{4}}, layers("again", 1), 48, 64},
      {"llm", ModuleKind::llm, false, {}, layers("llm", 2), 64, 64}};
  // Two pictures of 8 patches and 2 rows; one more whose patches yield no row.
  std::vector<SampleShape> samples{sample(2, 0), sample(1, 0), sample(0, 0)};
  samples[0].media.push_back({ModuleId{1}, {{10, 5, 5, 0, 0}}});
  samples[1].media[0].items[0].output_rows = 0;
  check_rows(graph, samples);
  const RowFlow flow(graph, samples);
  CHECK(flow.hidden(ModuleId{0}, 0) == 16);
  CHECK(flow.hidden(ModuleId{2}, 0) == 9);
  CHECK(flow.output(ModuleId{2}, 0) == 9);
  CHECK(flow.output(ModuleId{3}, 0) == 9);
  // What hands on no row does not pass through the encoder at all.
  CHECK(flow.hidden(ModuleId{0}, 1) == 0);
  CHECK(flow.output(ModuleId{3}, 2) == 0);
}

TEST_CASE("a plan of samples that stay where they are is the same without them",
          "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    auto made = testing::random_case(seed);
    auto whole = plan_iteration(made.plan, made.input).value();
    REQUIRE((whole.samples == made.input.samples));
    const auto samples = std::exchange(made.input.samples, {});
    const auto without = plan_iteration(made.plan, samples, made.input).value();
    CHECK(without.samples.empty());
    whole.samples.clear();
    CHECK((without == whole));
  }
}

}  // namespace
}  // namespace troupe::scheduler
