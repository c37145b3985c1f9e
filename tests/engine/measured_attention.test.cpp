#include "engine/profiling/measured_attention.hpp"

#include <ATen/ops/randn.h>

#include <algorithm>

#include "engine/profiling/profile_layers.hpp"
#include "engine/profiling/profile_run.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/torch_catch.hpp"

#include <catch2/generators/catch_generators.hpp>

namespace troupe::engine {
namespace {

JobSetup setup_of(AttentionRule rule) {
  auto job = tiny_job();
  job.modules.back().attention = rule;
  return prepare(job).value();
}

TEST_CASE("attention by modality is measured over the pairs that causal attention has",
          "[engine]") {
  const bool causal = GENERATE(true, false);
  AttentionShape shape{4, 2, 8, true};
  const auto heads = [](std::int64_t count) { return at::randn({70, count, 8}, at::kDouble); };
  const std::array<at::Tensor, 3> inputs{heads(4), heads(2), heads(2)};
  const auto fused = MeasuredAttention(shape, {40, 30}, causal)(inputs);
  shape.by_modality = true;
  const auto bitfield = MeasuredAttention(shape, {40, 30}, causal)(inputs);
  CHECK(bitfield.sub(fused).abs().max().item<double>() < 1e-12);
  // By another kernel: what is timed is what trains.
  CHECK_FALSE(bitfield.equal(fused));
}

TEST_CASE("an llm that attends by modality has a profile of its own", "[engine]") {
  const auto causal = setup_of(AttentionRule::causal), masked = setup_of(AttentionRule::modality);
  CHECK(profile_key(causal).model != profile_key(masked).model);
  QuietWatch watch(machine_clocks(), 100);
  const auto profiles = profile_layers(masked, {0.5, 1, 64, {}}, watch).value();
  const auto block = std::find_if(profiles.begin(), profiles.end(),
                                  [](const auto& profile) { return profile.kind == "llm.block"; });
  REQUIRE(block != profiles.end());
  CHECK(std::any_of(block->points.begin(), block->points.end(),
                    [](const auto& point) { return point.attention.forward_ms > 0; }));
}

}  // namespace
}  // namespace troupe::engine
