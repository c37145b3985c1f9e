#include "tests/bench/padded_sounds.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "runtime/vocabulary/index.hpp"

using namespace troupe;
using namespace troupe::bench;

namespace {

constexpr ModuleId kAudio{0}, kLlm{1};

/// One rank with an encoder of sounds and the llm.
ParallelPlan one_rank() {
  ParallelPlan plan;
  plan.model.modules = {{"audio", ModuleKind::encoder, false, {kLlm}, {{"audio.0", 1}}, 1, 1},
                        {"llm", ModuleKind::llm, false, {}, {{"llm.0", 1}}, 1, 1}};
  plan.devices.push_back({NodeId{0}, 0});
  Pipeline& pipeline = plan.pipelines.emplace_back();
  for (std::size_t g = 0; g < 2; ++g) {
    const ModuleId module{g};
    plan.module_groups.push_back({plan.model.at(module).name, {module}});
    pipeline.replicas.push_back(ReplicaId{g});
    plan.replicas.push_back({ModuleGroupId{g}, PipelineId{0}, {StageId{g}}});
    plan.stages.push_back({ReplicaId{g}, {{module, {0, 1}}}, {DeviceId{0}}});
  }
  return plan;
}

/// A microbatch of one part for each list.
MicrobatchList microbatches(const std::vector<std::vector<std::int32_t>>& samples) {
  MicrobatchList list;
  for (const auto& own : samples) list.push_back(Microbatch{{Part{own}}});
  return list;
}

/// Samples of one sound each, with so many rows in the encoder; of 0 without one.
std::vector<SampleShape> sounds(const std::vector<std::int32_t>& rows) {
  std::vector<SampleShape> samples;
  for (const auto count : rows) {
    SampleShape& sample = samples.emplace_back();
    sample.llm_tokens = sample.trained_tokens = 1;
    if (count > 0) sample.media.push_back({kAudio, {{2 * count, count, count, 0, 0}}});
  }
  return samples;
}

/// A millisecond for each row forward, two backward.
scheduler::TaskCost packed_cost(const std::vector<SampleShape>& samples) {
  return [&samples](StageId, const std::vector<std::int32_t>& part, scheduler::TaskKind kind) {
    double rows = 0;
    for (const auto sample : part)
      rows += static_cast<double>(samples[troupe::at(sample)].hidden_rows(kAudio));
    return kind == scheduler::TaskKind::backward ? 2 * rows : rows;
  };
}

}  // namespace

TEST_CASE("a padded batch takes what as many of its longest take", "[bench]") {
  const auto plan = one_rank();
  const auto samples = sounds({2, 0, 5, 3});
  const auto packed = packed_cost(samples);
  const auto padded = padded_cost(plan, ModuleGroupId{0}, samples, packed);

  // Three sounds, the longest of 5 rows: 15 instead of 10. Who has none is not padded.
  const std::vector<std::int32_t> all{0, 1, 2, 3};
  CHECK(padded(StageId{0}, all, scheduler::TaskKind::forward) == 15);
  CHECK(padded(StageId{0}, all, scheduler::TaskKind::backward) == 30);
  CHECK(padded(StageId{0}, {1}, scheduler::TaskKind::forward) == 0);
  CHECK(padded(StageId{1}, all, scheduler::TaskKind::forward) == 10);

  // In one part 5 more rows; in two, {2, 0, 5} and {3}, 3. Three milliseconds for each.
  const auto of_llm = microbatches({all});
  const std::vector<MicrobatchList> together{microbatches({all}), of_llm};
  const std::vector<MicrobatchList> apart{microbatches({{0, 1, 2}, {3}}), of_llm};
  CHECK(padding_ms(plan, ModuleGroupId{0}, together, padded, packed) == 15);
  CHECK(padding_ms(plan, ModuleGroupId{0}, apart, padded, packed) == 9);
}

TEST_CASE("for paddings sounds of like length go together", "[bench]") {
  // By hand: as drawn 2 x 6 and 3 x 6; of 1, 1, 2 and 6, 6 together 3 x 2 and 2 x 6.
  const auto samples = sounds({1, 6, 0, 6, 2, 1});
  const std::vector<std::vector<std::int32_t>> drawn{{0, 1, 2}, {3, 4, 5}};

  const auto dealt = deal_for_paddings(kAudio, samples, drawn);

  REQUIRE(dealt.ok());
  std::vector<std::int32_t> all;
  std::vector<std::vector<std::int32_t>> with_rows;
  for (const auto& own : dealt.value()) {
    all.insert(all.end(), own.begin(), own.end());
    auto& rows = with_rows.emplace_back();
    for (const auto sample : own)
      if (sample != 2) rows.push_back(sample);
    std::ranges::sort(rows);
  }
  std::ranges::sort(all);
  CHECK(all == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5});
  // Who has no sound stays where it was drawn.
  CHECK(std::ranges::count(dealt.value()[0], 2) == 1);
  std::ranges::sort(with_rows);
  CHECK(with_rows == std::vector<std::vector<std::int32_t>>{{0, 4, 5}, {1, 3}});
}
