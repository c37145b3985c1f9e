#include "scheduler/layout/layout_estimate.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "tests/scheduler/example_models.hpp"
#include "tests/scheduler/layout_requests.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;

/// vision of one layer, 18 ms, before an llm of two, 12 ms each; 100 bytes of state and 10 of a
/// microbatch in each layer. Four microbatches.
struct Estimated {
  ModelGraph graph;
  CostModel model;
  AutoLayoutRequest request;
  std::shared_ptr<const LayerWeights> weights;

  explicit Estimated(SumOrder sums = SumOrder::chain)
      : graph(make_graph(sums)), model(testing::model_of(graph, {1})) {
    request.model = &model;
    request.samples = {testing::text(1)};
    request.cluster = {3, 1};
    request.global_batch = request.microbatches = 4;
    LayerWeights made;
    made.layers = {{ModuleId{0}, 0}, {ModuleId{1}, 0}, {ModuleId{1}, 1}};
    made.work_ms = {18, 12, 12};
    made.state_bytes = {100, 100, 100};
    made.activation_bytes = {10, 10, 10};
    made.arriving_bytes = {0, 0, 0};
    made.crossing_bytes.resize(3);
    weights = std::make_shared<const LayerWeights>(std::move(made));
  }
  Estimated(const Estimated&) = delete;
  Estimated& operator=(const Estimated&) = delete;

  static ModelGraph make_graph(SumOrder sums) {
    ModelGraph graph;
    graph.sums = sums;
    graph.modules = {
        {"vision", ModuleKind::encoder, false, {ModuleId{1}}, testing::layers("vision", 1), 1, 1},
        {"llm", ModuleKind::llm, false, {}, testing::layers("llm", 2), 1, 1}};
    return graph;
  }
  PipelineShape shape(PipelineForm form, std::int32_t devices, bool phases) const {
    PipelineShapes shapes(graph, *weights, {}, phases);
    ShapeSearch search;
    search.count = 100;
    search.cost = [](const PipelineShape& shape) { return std::optional(shape.slowest_ms); };
    search.least_cost = [](PipelineForm, std::int32_t, double) { return 0.0; };
    const auto found = shapes.best(devices, search);
    return std::find_if(found.begin(), found.end(),
                        [&](const auto& each) { return each.shape.form == form; })
        ->shape;
  }
};

TEST_CASE("in phases what encoders and llm do on the same devices adds up", "[scheduler]") {
  Estimated made;
  made.request.schedule = "three-phase";
  // Vision on a device of its own works while the llm does.
  const auto apart = made.shape(PipelineForm::encoders_first, 3, true);
  CHECK(apart.slowest_ms == 18);
  const LayoutEstimate estimate(made.request, made.weights, 1);
  CHECK(estimate.ms(apart) == Approx(42 + 3 * 18));
  // On the first of two devices of the llm it does not, and moves none of the llm's layers.
  const auto shared = made.shape(PipelineForm::shared, 2, true);
  CHECK(shared.slowest_ms == 30);
  CHECK(shared.tracks.back().cuts == std::vector<std::int32_t>{0, 1, 2});
  CHECK(estimate.ms(shared) == Approx(42 + 3 * 30));
  CHECK(made.shape(PipelineForm::shared, 2, false).slowest_ms == 30);
  CHECK(made.shape(PipelineForm::chain, 1, true).slowest_ms == 42);
  CHECK(with_cut(made.shape(PipelineForm::encoders_first, 2, true), *made.weights, 1, 1, 2)
            .slowest_ms == 24);
}

TEST_CASE("phases fill the pipeline anew for each window that memory has room for", "[scheduler]") {
  Estimated made;
  made.request.device_memory = Bytes{120};  // Two microbatches of vision.
  const auto shape = made.shape(PipelineForm::encoders_first, 3, false);
  CHECK(LayoutEstimate(made.request, made.weights, 1).ms(shape) == Approx(42 + 3 * 18));
  CHECK_FALSE(LayoutEstimate(made.request, made.weights, 1).may_fit(shape));  // Three in flight.
  made.request.schedule = "three-phase";
  const LayoutEstimate two(made.request, made.weights, 1);
  CHECK(two.ms(shape) == Approx(42 + 3 * 18 + 24));
  CHECK(two.may_fit(shape));
  // Vision shares what 200 bytes of state leave of its device: 24 bytes, a microbatch of each.
  made.request.device_memory = Bytes{224};
  const auto shared = made.shape(PipelineForm::shared, 2, true);
  CHECK(LayoutEstimate(made.request, made.weights, 1).ms(shared) == Approx(42 + 3 * 30 + 3 * 12));
  CHECK_FALSE(LayoutEstimate(made.request, made.weights, 1).may_fit(shared));  // 10 and 2 x 10.
  made.request.device_memory = Bytes{230};
  CHECK(LayoutEstimate(made.request, made.weights, 1).may_fit(shared));
  // Of five microbatches two fit beside the llm's two in flight: three windows, 3 + 2 / 2.
  made.request.global_batch = made.request.microbatches = 5;
  made.request.device_memory = Bytes{238};
  auto wide = *made.weights;
  wide.activation_bytes = {1, 18, 18};
  made.weights = std::make_shared<const LayerWeights>(wide);
  CHECK(LayoutEstimate(made.request, made.weights, 1).ms(shared) == Approx(42 + 4 * 30 + 2 * 12));
  // None would: with all of them in one window the llm has one in flight.
  made.request.device_memory = Bytes{236};
  CHECK(LayoutEstimate(made.request, made.weights, 1).ms(shared) == Approx(42 + 4 * 30 + 4 * 12));
  made.request.device_memory = Bytes{210};
  CHECK_FALSE(LayoutEstimate(made.request, made.weights, 1).may_fit(shared));
}

TEST_CASE("holders of a node share what their sums send over the network", "[scheduler]") {
  Estimated made;
  auto& speeds = made.request.prediction.speeds;
  speeds.network.gigabytes_per_s = speeds.reduce_gigabytes_per_s = 1e-6;  // 1 ms a byte.
  speeds.node.gigabytes_per_s = 1e-5;                                     // 0.1 ms.
  // Of 16 bytes of state four are gradients. Four nodes: each adds three quarters, and moves them
  // twice.
  made.request.cluster = {4, 1};
  CHECK(reduction_ms_per_byte(made.request, 4, 1) == Approx((0.75 + 1.5) / 4));
  // Two on each of two nodes: between nodes half of it twice, for two devices; inside half twice.
  made.request.cluster = {2, 2};
  CHECK(reduction_ms_per_byte(made.request, 4, 1) == Approx((0.75 + 0.5 + 0.1) / 4));
  // Every second device: a node has one of them.
  CHECK(reduction_ms_per_byte(made.request, 2, 2) == Approx((0.5 + 1) / 4));
  made.request.cluster = {1, 4};
  CHECK(reduction_ms_per_byte(made.request, 4, 1) == Approx((0.75 + 0.15) / 4));
  CHECK(reduction_ms_per_byte(made.request, 1, 4) == 0);
  // Of bf16's 18 bytes of state four are gradients too, which are added up in fp32.
  made.request.prediction.dtype = Dtype::bf16;
  CHECK(reduction_ms_per_byte(made.request, 4, 1) == Approx((0.75 + 0.15) * 4 / 18));
}

TEST_CASE("sums by NCCL are estimated as calls to it", "[scheduler]") {
  // As above, by the ring: each moves three quarters twice, of two on a node half off it, which the
  // node's own link does not make longer.
  const auto ms = [](SumOrder sums, ClusterShape cluster, std::int32_t holders) {
    Estimated made(sums);
    auto& speeds = made.request.prediction.speeds;
    speeds.network.gigabytes_per_s = speeds.reduce_gigabytes_per_s = 1e-6;
    speeds.node.gigabytes_per_s = 1e-5;
    speeds.network.latency_ms = 100;  // Of each sum, not of bytes.
    made.request.cluster = cluster;
    return reduction_ms_per_byte(made.request, holders, 1);
  };
  CHECK(ms(SumOrder::nccl, {4, 1}, 4) == Approx((0.75 + 1.5) / 4));
  CHECK(ms(SumOrder::nccl, {2, 2}, 4) == Approx((0.75 + 0.75) / 4));
  CHECK(ms(SumOrder::nccl, {1, 4}, 4) == Approx((0.75 + 0.15) / 4));
  // Two and one: the lone one moves two thirds twice, all of it off its node.
  CHECK(ms(SumOrder::nccl, {2, 2}, 3) == Approx((2 / 3. + 4 / 3.) / 4));
  CHECK(ms(SumOrder::nccl, {1, 4}, 1) == 0);
  // In rank order half goes to the other node, and comes back.
  CHECK(ms(SumOrder::nccl_chain, {2, 2}, 4) == Approx((0.75 + 1) / 4));
}

}  // namespace
}  // namespace troupe::scheduler
