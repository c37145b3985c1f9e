#include "scheduler/cost/roofline.hpp"
#include "scheduler/cost/cost_model.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/scheduler/llama_modules.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using testing::llm;

TEST_CASE("devices are found by full or unambiguous name", "[scheduler]") {
  CHECK(find_device("H100-80G").value().bf16_teraflops == Approx(989.4));
  CHECK(find_device("H200").value().memory == Bytes{141'000'000'000});
  const auto ambiguous = find_device("A100");
  REQUIRE_FALSE(ambiguous.ok());
  CHECK_THAT(ambiguous.error().message, ContainsSubstring("A100-40G, A100-80G"));
  CHECK_THAT(find_device("H100-80").error().fix, ContainsSubstring("H100-80G"));
}

TEST_CASE("a device is known by what its driver calls it", "[scheduler]") {
  for (const auto& [reported, name] :
       {std::pair{"NVIDIA H100 80GB HBM3", "H100-80G"}, std::pair{"NVIDIA H200", "H200-141G"},
        std::pair{"NVIDIA A100-SXM4-40GB", "A100-40G"},
        std::pair{"NVIDIA A100-SXM4-80GB", "A100-80G"}, std::pair{"NVIDIA A40", "A40-48G"}}) {
    CAPTURE(reported);
    REQUIRE(reported_device(reported) != nullptr);
    CHECK(reported_device(reported)->name == name);
  }
  // Slower forms, a part of one, another chip, one of two memories, processors.
  for (const char* other :
       {"NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA GH200 480GB", "NVIDIA A100", "NVIDIA A100-PCIE-40GB", "NVIDIA H100 96GB HBM3",
        "Intel(R) Xeon(R) Processor, 2 cores", "H100-80G (computed)", "NVIDIA", ""}) {
    CAPTURE(other);
    CHECK(reported_device(other) == nullptr);
  }
}

TEST_CASE("large layers are bound by arithmetic, small ones by traffic and launches",
          "[scheduler]") {
  const RooflineOptions options;
  const auto device = find_device("H100-80G").value();
  const auto works = layer_works(llm(4096, 14336, 32));
  const auto profiles = computed_profiles(works, device, {{1, 1}, {2, 1}}, options);
  REQUIRE(profiles.size() == 6);  // Embedding, block, head at two parallelisms.
  const auto& block = profiles[2];
  CHECK(block.kind == "llm.block");
  CHECK(block.origin == CostOrigin::computed);
  const auto& longest = block.points.back();
  REQUIRE(longest.tokens == 16384);
  // 2 x 218.1 M x 16384 flops at 0.6 x 989.4 TFLOP/s: 12.04 ms.
  CHECK(longest.linear.forward_ms == Approx(12.04 + options.launch_ms).epsilon(0.001));
  // Causal scores and values: 2 x 4096 x 16384^2 flops: 3.70 ms.
  CHECK(longest.attention.forward_ms == Approx(3.70).epsilon(0.01));
  CHECK(longest.attention.input_grad_ms == Approx(2 * longest.attention.forward_ms));
  // 64 tokens stream 436 MB of weights at 0.8 x 3350 GB/s.
  CHECK(block.points.front().linear.forward_ms > 436e6 / (0.8 * 3350e6));
  // Two devices: half of the arithmetic, and collectives.
  const auto& halved = profiles[3].points.back().linear.forward_ms;
  CHECK(halved > 6.02);
  CHECK(halved < longest.linear.forward_ms);
}

TEST_CASE("a head in chunks keeps no logits and computes a product more", "[scheduler]") {
  const RooflineOptions options;
  const auto device = find_device("H100-80G").value();
  const auto works = layer_works(llm(4096, 14336, 1));
  const auto profiles = computed_profiles({works.back()}, device, {{1, 1}}, options);
  const auto linear = [&](TokenCount tokens) {
    for (const auto& point : profiles.front().points)
      if (point.tokens == tokens) return point.linear;
    return PartCost{};
  };
  // 256 rows of 128,256 columns of 2 bytes: a chunk of 256 rows. Kept per row: those that were
  // chosen, their norm, logits: 2 x (2 x 4096 + 128,256) bytes, before 2 x (4096 + 128,256).
  CHECK(linear(256).activation_bytes == Approx(256.0 * 272'896));
  CHECK(linear(256).forward_ms == Approx(linear(256).input_grad_ms));
  // 16,384 rows are 64 chunks. Kept: the first two, and the input gradient: 2 x 3 x 4096 bytes, of
  // whole logits 264,704.
  CHECK(linear(16'384).activation_bytes == Approx(16'384.0 * 24'576));
  // A product of 2 x 525.3 M x 16,384 flops takes 29.00 ms, and so each pass took: 29.05. Now the
  // forward has two and 64 launches, the input gradient reads and writes 134 MB at 2680 GB/s.
  CHECK(linear(16'384).forward_ms == Approx(2 * 29.00 + 64 * 0.05).epsilon(0.001));
  CHECK(linear(16'384).input_grad_ms == Approx(0.1 + 0.05).epsilon(0.01));
  CHECK(linear(16'384).weight_grad_ms == Approx(linear(16'384).forward_ms));
  // With a tenth of the bandwidth two chunks of 512 rows read 1.05 GB of weights each, and 140 MB
  // of rows and logits: 8.36 ms at 268 GB/s.
  auto thin = device;
  thin.memory_gigabytes_per_s /= 10;
  const auto thin_profiles = computed_profiles({works.back()}, thin, {{1, 1}}, options);
  for (const auto& point : thin_profiles[0].points)
    if (point.tokens == 512)
      CHECK(point.linear.forward_ms == Approx(2 * 8.36 + 2 * 0.05).epsilon(0.001));
}

TEST_CASE("computed profiles make a cost model that says so", "[scheduler]") {
  auto module = llm(1024, 2816, 2);
  ModelGraph graph;
  graph.modules = {
      {"llm", ModuleKind::llm, false, {}, {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}}, 1024, 1024}};
  const auto works = layer_works(module);
  Profile profile{"A40-48G (computed)", {}, {}};
  for (std::size_t i = 0; i < works.size(); ++i)
    profile.layers.push_back({graph.modules[0].layers[i].name, works[i].kind});
  profile.profiles = computed_profiles(works, find_device("A40-48G").value(), {{1, 1}, {1, 2}});
  const auto model = CostModel::create(graph, profile);
  REQUIRE(model.ok());
  CHECK(model.value().origin(ModuleId{0}) == CostOrigin::computed);
  CHECK(model.value().parallelisms(ModuleId{0}).size() == 2);
  const auto one = model.value().cost({ModuleId{0}, 1}, 8000).value();
  const auto two = model.value().cost({ModuleId{0}, 1}, 8000, {1, 2}).value();
  CHECK(two.forward_ms < one.forward_ms);
  CHECK(two.parameters == one.parameters);
  // The knee of the roofline lies between two points, where a curve must miss it.
  for (const auto& error : model.value().errors()) CHECK(error.left_out.worst < 0.2);
}

TEST_CASE("no rank is given part of a head", "[scheduler]") {
  LayerWork block = layer_works(llm(1024, 2816, 2))[1];
  block.attention->heads = 12, block.attention->kv_heads = 4;
  const auto computed = [&](std::int32_t tp) {
    return !computed_profiles({block}, find_device("A40-48G").value(), {{tp, 1}}).empty();
  };
  for (const std::int32_t tp : {1, 2, 4, 12}) CHECK(computed(tp));
  CHECK_FALSE(computed(8));
  CHECK_FALSE(computed(3));  // Queries divide, keys neither divide nor repeat.
}

}  // namespace
}  // namespace troupe::scheduler
