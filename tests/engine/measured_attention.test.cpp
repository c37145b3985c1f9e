#include "engine/profiling/measured_attention.hpp"

#include <ATen/ops/randn.h>

#include <algorithm>

#include "engine/profiling/kind_bench.hpp"
#include "engine/profiling/profile_layers.hpp"
#include "engine/profiling/profile_run.hpp"
#include "engine/profiling/profile_shards.hpp"
#include "kernels/gpu_tile_lists.hpp"
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
  const auto measured = [&] {
    return MeasuredAttention(shape, {40, 30}, causal, kernels::GpuLists::none)(inputs);
  };
  const auto fused = measured();
  shape.by_modality = true;
  const auto bitfield = measured();
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

/// As for a GPU: its lists are made on the host, also where the layers run there.
JobSetup setup_with_lists() {
  auto setup = setup_of(AttentionRule::modality);
  setup.job.cluster.device = "cuda";
  return setup;
}

LayerKind llm_block(const JobSetup& setup) {
  const auto kinds = layer_kinds(setup);
  return *std::find_if(kinds.begin(), kinds.end(),
                       [](const LayerKind& kind) { return kind.name == "llm.block"; });
}

TEST_CASE("what is timed of attention by modality finds its lists made", "[engine]") {
  const auto setup = setup_with_lists();
  QuietWatch watch(machine_clocks(), 100);
  auto bench = KindBench::create(setup, llm_block(setup), watch).value();
  const auto before = kernels::gpu::HostLists::made_count();
  bench.begin(256);
  // By hand: those of the four sequences of 64 that all copies share, and attention's own, of one
  // sequence and of four.
  CHECK(bench.copies() > 1);
  CHECK(kernels::gpu::HostLists::made_count() == before + 3);
  do bench.forward();
  while (bench.backward());
  bench.finish();
  CHECK(kernels::gpu::HostLists::made_count() == before + 3);
}

TEST_CASE("a shard's attention by modality has its lists made ahead", "[engine]") {
  const auto setup = setup_with_lists();
  QuietWatch watch(machine_clocks(), 100);
  scheduler::LayerProfile whole{"", {}, scheduler::CostOrigin::measured, Bytes{10'000}, {}};
  for (const TokenCount tokens : {16, 32}) whole.points.push_back({tokens, {}, {}});
  const auto before = kernels::gpu::HostLists::made_count();
  REQUIRE(profile_shard(setup, llm_block(setup), whole, {2, 1}, {1, 0}, watch).ok());
  CHECK(kernels::gpu::HostLists::made_count() == before + 2);  // Of either size.
}

}  // namespace
}  // namespace troupe::engine
