#include "scheduler/recovery/pipeline_templates.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "scheduler/recovery/instantiate.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

TemplateRequest request(std::vector<TemplateLayer> layers, std::int64_t nodes, std::int64_t gpus) {
  TemplateRequest made;
  made.layers = std::move(layers);
  made.node_count = nodes;
  made.gpus_per_node = gpus;
  made.device_memory = Bytes{1'000'000};
  return made;
}

// Layer i (from 0): forward = backward = i + 1.
std::vector<TemplateLayer> growing(int count) {
  std::vector<TemplateLayer> layers;
  for (int i = 0; i < count; ++i) layers.push_back({i + 1.0, i + 1.0, Bytes{1}, {}});
  return layers;
}

double brute_stage_ms(const TemplateRequest& input, int begin, int end, int gpus) {
  double sum = 0, bytes = 0;
  for (int i = begin; i < end; ++i) {
    const auto& layer = input.layers[static_cast<std::size_t>(i)];
    if (gpus > 1 && !layer.in_node_sync_ms.contains(gpus))
      return std::numeric_limits<double>::infinity();
    sum += (layer.forward_ms + layer.backward_ms) / gpus +
           (gpus > 1 ? layer.in_node_sync_ms.at(gpus) : 0);
    bytes += static_cast<double>(layer.memory.count());
  }
  return bytes > static_cast<double>(input.device_memory.count()) * gpus
             ? std::numeric_limits<double>::infinity()
             : sum;
}

// Every cut and every assignment of GPUs, one after the other.
double brute_force(const TemplateRequest& input, int nodes, double microbatches) {
  const int layer_count = static_cast<int>(input.layers.size());
  const int gpu_count = nodes * static_cast<int>(input.gpus_per_node);
  double best = std::numeric_limits<double>::infinity();
  std::function<void(int, int, double, double)> place = [&](int layer, int gpu, double sum,
                                                            double slowest) {
    if (layer == layer_count && gpu == gpu_count)
      best = std::min(best, sum + (microbatches - 1) * slowest);
    if (layer == layer_count || gpu == gpu_count) return;
    const int left =
        static_cast<int>(input.gpus_per_node) - gpu % static_cast<int>(input.gpus_per_node);
    for (int end = layer + 1; end <= layer_count; ++end)
      for (int k = 1; k <= left; ++k)
        if (const double ms = brute_stage_ms(input, layer, end, k); std::isfinite(ms))
          place(end, gpu + k, sum + ms, std::max(slowest, ms));
  };
  place(0, 0, 0, 0);
  return best;
}

// What every template must be, whatever its cost.
void check_valid(const TemplateRequest& input, const PipelineTemplate& made) {
  std::int32_t layer = 0, gpu = 0;
  double sum = 0, slowest = 0;
  for (const auto& stage : made.stages) {
    REQUIRE(stage.layers.begin == layer);
    REQUIRE(stage.layers.end > layer);
    REQUIRE(stage.node == gpu / input.gpus_per_node);
    REQUIRE((gpu + stage.gpu_count - 1) / input.gpus_per_node == stage.node);
    const double ms = brute_stage_ms(input, stage.layers.begin, stage.layers.end, stage.gpu_count);
    REQUIRE(std::isfinite(ms));
    sum += ms;
    slowest = std::max(slowest, ms);
    layer = stage.layers.end;
    gpu += stage.gpu_count;
  }
  REQUIRE(layer == static_cast<std::int32_t>(input.layers.size()));
  REQUIRE(gpu == made.node_count * input.gpus_per_node);
  const auto microbatches = static_cast<double>(input.microbatches.value_or(
      4 * std::min<std::int64_t>(layer, made.node_count * input.gpus_per_node)));
  REQUIRE(made.iteration_ms == Approx(sum + (microbatches - 1) * slowest));
  REQUIRE(made.microbatch_ms == Approx(made.iteration_ms / microbatches));
}

std::vector<LayerRange> cuts(const PipelineTemplate& made) {
  std::vector<LayerRange> ranges;
  for (const auto& stage : made.stages) ranges.push_back(stage.layers);
  return ranges;
}

TEST_CASE("six growing layers get the published cuts", "[scheduler]") {
  // Stage times: 20|22, 12|18|12, 12|8|10|12. With Nb = 4 x nodes, e.g. two nodes:
  // 42 + 7 x 22 = 196.
  const auto set = make_templates(request(growing(6), 6, 1));
  REQUIRE(set.ok());
  const auto& templates = set.value().templates;
  REQUIRE(templates.size() == 6);
  CHECK(set.value().min_nodes == 1);
  CHECK(cuts(templates[1]) == std::vector<LayerRange>{{0, 4}, {4, 6}});
  CHECK(cuts(templates[2]) == std::vector<LayerRange>{{0, 3}, {3, 5}, {5, 6}});
  CHECK(cuts(templates[3]) == std::vector<LayerRange>{{0, 3}, {3, 4}, {4, 5}, {5, 6}});
  CHECK(templates[1].iteration_ms == Approx(196));
  CHECK(templates[5].stages.size() == 6);
}

TEST_CASE("n nodes of four GPUs have one template each", "[scheduler]") {
  auto layers = growing(24);
  for (auto& layer : layers) layer.in_node_sync_ms = {{2, 0.1}, {3, 0.1}, {4, 0.1}};
  const auto input = request(layers, 6, 4);
  const auto set = make_templates(input);
  REQUIRE(set.ok());
  REQUIRE(set.value().templates.size() == 6);
  for (int n = 1; n <= 6; ++n) {
    const auto& made = set.value().templates[static_cast<std::size_t>(n - 1)];
    CHECK(made.node_count == n);
    check_valid(input, made);
  }
}

TEST_CASE("the printed terms are reported as printed", "[scheduler]") {
  // Stages 10, 1, 1, 1 with Nb = 16: T1 = 13, k* = 0, T2 = (16 - 4 + 0 - 1) x 10 = 110, T3 = 13;
  // together 136, below the work bound 160. What is planned with is 13 + 15 x 10 = 163.
  auto input =
      request({{5, 5, {}, {}}, {0.5, 0.5, {}, {}}, {0.5, 0.5, {}, {}}, {0.5, 0.5, {}, {}}}, 4, 1);
  input.min_nodes = 4;
  input.microbatches = 16;
  const auto set = make_templates(input);
  REQUIRE(set.ok());
  const auto& made = set.value().templates.front();
  CHECK(made.t1_ms == Approx(13));
  CHECK(made.t2_ms == Approx(110));
  CHECK(made.t3_ms == Approx(13));
  CHECK(made.iteration_ms == Approx(163));
}

TEST_CASE("one microbatch count for all stage counts keeps one wide stage from winning",
          "[scheduler]") {
  // 8 layers of 8 ms, 8 GPUs, 2 ms sync at k = 8. One stage: 8 x (1 + 2) = 24 per microbatch,
  // eight stages: 8. With Nb = 4 x 8 = 32: 24 x 32 = 768 against 64 + 31 x 8 = 312.
  std::vector<TemplateLayer> layers(8, {4, 4, Bytes{1}, {{8, 2.0}}});
  const auto set = make_templates(request(layers, 1, 8));
  REQUIRE(set.ok());
  const auto& made = set.value().templates.front();
  CHECK(made.stages.size() == 8);
  CHECK(made.iteration_ms == Approx(312));
  CHECK(made.microbatch_ms == Approx(9.75));
  // T = 64 + (32 - 8 + 0 - 1) x 8 + 64 = 312: equal stages make the printed form exact.
  CHECK(made.t1_ms + made.t2_ms + made.t3_ms == Approx(312));
  // With the published Nb = 4S the wide stage would have won: the same work as one layer, so that
  // S = 1, takes 24 + 3 x 24 = 96, 24 per microbatch.
  auto wide = request({{32, 32, Bytes{1}, {{8, 16.0}}}}, 1, 8);
  wide.microbatches = 4;
  const auto one = make_templates(wide).value().templates.front();
  CHECK(one.iteration_ms == Approx(96));
  CHECK(one.t1_ms + one.t2_ms + one.t3_ms == Approx(96));
  CHECK(one.microbatch_ms == Approx(24));
}

TEST_CASE("memory decides the smallest pipeline", "[scheduler]") {
  // Six layers of 10 bytes, devices of 20: three GPUs of one node each.
  std::vector<TemplateLayer> layers(6, {1, 1, Bytes{10}, {}});
  auto input = request(layers, 6, 1);
  input.device_memory = Bytes{20};
  const auto set = make_templates(input);
  REQUIRE(set.ok());
  CHECK(set.value().min_nodes == 3);
  CHECK(set.value().templates.front().node_count == 3);
  CHECK(set.value().templates.size() == 4);
  input.fault_tolerance = 1;  // Sizes 3 .. 6 - 3.
  CHECK(make_templates(input).value().templates.size() == 1);
}

TEST_CASE("templates that cannot be name the rule and the nearest choice", "[scheduler][errors]") {
  auto input = request(growing(6), 7, 1);
  input.min_nodes = 7;  // More nodes than layers.
  auto result = make_templates(input);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code == Errc::infeasible);
  CHECK_THAT(result.error().message, ContainsSubstring("each node needs a layer"));
  CHECK_THAT(result.error().fix, ContainsSubstring("min_nodes = 6"));
  input.min_nodes.reset();  // Without the pin: sizes 1 to 6, none of 7.
  CHECK(make_templates(input).value().templates.back().node_count == 6);

  input = request(growing(6), 4, 1);
  input.device_memory = Bytes{1};
  result = make_templates(input);
  REQUIRE_FALSE(result.ok());
  CHECK_THAT(result.error().message, ContainsSubstring("at least 6 nodes"));

  input = request(growing(6), 3, 1);
  input.fault_tolerance = 3;
  result = make_templates(input);
  REQUIRE_FALSE(result.ok());
  CHECK_THAT(result.error().fix, ContainsSubstring("fault_tolerance = 2"));
}

TEST_CASE("a layer larger than the GPUs that may share it is named", "[scheduler][errors]") {
  auto layers = growing(3);
  layers[1].memory = Bytes{100};
  layers[1].in_node_sync_ms = {{2, 1.0}};
  auto input = request(layers, 3, 4);
  input.device_memory = Bytes{40};
  const auto result = make_templates(input);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code == Errc::infeasible);
  CHECK_THAT(result.error().where, ContainsSubstring("layers[1]"));
  CHECK_THAT(result.error().message, ContainsSubstring("100 bytes"));
  CHECK_THAT(result.error().fix, ContainsSubstring("50 bytes per device"));
}

TEST_CASE("bad numbers and a million layers are refused in bounded time", "[scheduler][errors]") {
  auto input = request(growing(3), 2, 1);
  input.layers[2].forward_ms = std::nan("");
  CHECK(make_templates(input).error().where == "layers[2].forward_ms");
  input.layers[2].forward_ms = 1;
  input.layers[0].in_node_sync_ms = {{2, -1.0}};
  CHECK(make_templates(input).error().code == Errc::invalid_argument);
  CHECK(make_templates(request(growing(3), 0, 1)).error().where == "nodes");
  CHECK(make_templates(request(growing(3), 1, 0)).error().where == "gpus_per_node");
  CHECK(make_templates(request({}, 1, 1)).error().code == Errc::infeasible);
  const auto many = make_templates(request(growing(1'000'000), 8, 8));
  REQUIRE_FALSE(many.ok());
  CHECK(many.error().code == Errc::invalid_argument);
  CHECK_THAT(many.error().fix, ContainsSubstring("blocks of 489"));
  CHECK_FALSE(make_templates(request(growing(64), 1'000'000'000, 1'000)).ok());
}

TEST_CASE("templates are the true optimum", "[scheduler][property]") {
  int compared = 0;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    std::mt19937 random(seed);
    TemplateRequest input;
    const int gpus = 1 + static_cast<int>(random() % 4);
    input.gpus_per_node = gpus;
    input.node_count = 1 + random() % (gpus >= 3 ? 2 : 3);
    const bool whole = random() % 2;  // Whole numbers make ties common.
    const auto time = [&] {
      return whole ? static_cast<double>(random() % 6) : static_cast<double>(random()) / 1e9;
    };
    const std::size_t layer_count = 1 + random() % 6;
    for (std::size_t i = 0; i < layer_count; ++i) {
      TemplateLayer layer{time(), time(), Bytes{static_cast<std::int64_t>(random() % 10)}, {}};
      for (int k = 2; k <= gpus; ++k)
        if (random() % 4) layer.in_node_sync_ms[k] = time() / 4;
      input.layers.push_back(layer);
    }
    input.device_memory = Bytes{static_cast<std::int64_t>(8 + random() % 20)};
    if (random() % 2) input.microbatches = 1 + random() % 12;
    CAPTURE(seed);
    const auto set = make_templates(input);
    for (int n = 1; n <= input.node_count; ++n) {
      const auto microbatches = static_cast<double>(input.microbatches.value_or(
          4 * std::min<std::int64_t>(static_cast<std::int64_t>(layer_count), n * gpus)));
      const double best = brute_force(input, n, microbatches);
      const PipelineTemplate* made = nullptr;
      if (set.ok())
        for (const auto& candidate : set.value().templates)
          if (candidate.node_count == n) made = &candidate;
      CAPTURE(n, best);
      REQUIRE((made != nullptr) == std::isfinite(best));
      if (!made) continue;
      check_valid(input, *made);
      REQUIRE(made->iteration_ms == Approx(best).epsilon(1e-9));
      ++compared;
    }
  }
  CHECK(compared > 4000);
}

TEST_CASE("the template sizes represent every number of nodes that may remain",
          "[scheduler][property]") {
  // Theorem 1 (dissertation A.1): sizes n0 .. N - f n0 cover (f + 1) n0 .. N with f + 1 pipelines.
  for (int n0 = 1; n0 <= 5; ++n0)
    for (int f = 0; f <= 3; ++f)
      for (int cluster = (f + 1) * n0; cluster <= 30; ++cluster) {
        // most[n]: the most pipelines that use exactly n nodes.
        std::vector<int> most(static_cast<std::size_t>(cluster) + 1, -1);
        most[0] = 0;
        for (int n = n0; n <= cluster; ++n)
          for (int size = n0; size <= std::min(n, cluster - f * n0); ++size)
            if (most[static_cast<std::size_t>(n - size)] >= 0)
              most[static_cast<std::size_t>(n)] = std::max(
                  most[static_cast<std::size_t>(n)], most[static_cast<std::size_t>(n - size)] + 1);
        for (int n = (f + 1) * n0; n <= cluster; ++n)
          REQUIRE(most[static_cast<std::size_t>(n)] >= f + 1);
      }
}

TEST_CASE("made templates are instantiated for every number of nodes that may remain",
          "[scheduler][property]") {
  for (int n0 = 1; n0 <= 5; ++n0)
    for (int f = 0; f <= 3; ++f)
      for (int cluster = (f + 1) * n0; cluster <= 30; cluster += 1 + cluster % 3) {
        auto input = request(growing(30), cluster, 1);
        input.min_nodes = n0;
        input.fault_tolerance = f;
        CAPTURE(n0, f, cluster);
        const auto set = make_templates(input);
        REQUIRE(set.ok());
        const auto& templates = set.value().templates;
        REQUIRE(templates.size() == static_cast<std::size_t>(cluster - (f + 1) * n0 + 1));
        REQUIRE(templates.front().node_count == n0);
        REQUIRE(templates.back().node_count == cluster - f * n0);
        InstantiateRequest request;
        for (const auto& made : templates)
          request.templates.push_back({made.node_count, made.microbatch_ms});
        request.fault_tolerance = f;
        request.global_batch = 64;
        for (int nodes = n0; nodes <= cluster; ++nodes) {
          CAPTURE(nodes);
          request.node_count = nodes;
          const auto made = instantiate(request);
          REQUIRE(made.ok() == (nodes >= (f + 1) * n0));
          if (!made.ok()) continue;
          REQUIRE(made.value().pipelines.size() > static_cast<std::size_t>(f));
          std::int64_t used = 0, microbatches = 0;
          for (const auto& pipeline : made.value().pipelines) {
            used += pipeline.node_count;
            microbatches += pipeline.microbatches;
          }
          REQUIRE(used == nodes);
          REQUIRE(microbatches == 64);
        }
      }
}

TEST_CASE("templates hold what is in flight", "[scheduler]") {
  // Four layers of 10 bytes and 5 for each microbatch, nodes of one device of 45 bytes. With one in
  // flight two nodes of two layers (30) would do. With two it is 20 a layer: 40, so that two nodes
  // still do; 45 bytes hold no three layers (60). On 35 bytes two nodes hold two microbatches no
  // more, nor do three nodes three (25 a layer, two layers somewhere); four nodes hold 30 each.
  TemplateRequest request;
  request.node_count = 4;
  const LayersInFlight layers = [](std::int64_t in_flight) {
    return Result(std::vector<TemplateLayer>(4, {1, 2, Bytes{10 + 5 * in_flight}, {}}));
  };
  request.device_memory = Bytes{45};
  CHECK(make_templates_in_flight(request, layers).value().min_nodes == 2);
  request.device_memory = Bytes{35};
  request.layers = layers(1).value();
  CHECK(make_templates(request).value().min_nodes == 2);
  const auto set = make_templates_in_flight(request, layers).value();
  CHECK(set.min_nodes == 4);
  CHECK(set.templates.size() == 1);
  // Each node's two devices are a stage of their own: one node has two microbatches in flight.
  request.gpus_per_node = 2;
  request.device_memory = Bytes{45};
  CHECK(make_templates_in_flight(request, layers).value().min_nodes == 1);
}

TEST_CASE("templates that nothing holds in flight are refused", "[scheduler][errors]") {
  TemplateRequest request;
  request.node_count = 4;
  request.device_memory = Bytes{29};
  const LayersInFlight layers = [](std::int64_t in_flight) {
    return Result(std::vector<TemplateLayer>(4, {1, 2, Bytes{10 + 5 * in_flight}, {}}));
  };
  const auto refused = make_templates_in_flight(request, layers);  // A layer of 30 at four nodes.
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  const LayersInFlight broken = [](std::int64_t) {
    return Result<std::vector<TemplateLayer>>(Error{Errc::not_found, "no profile", "", ""});
  };
  CHECK(make_templates_in_flight(request, broken).error().message == "no profile");
}

}  // namespace
}  // namespace troupe::scheduler
