#include "tests/torch_catch.hpp"

#include "engine/execution/mask_store.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine/execution/model_stage.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/state/seeded_store.hpp"
#include "models/llama/family.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {
namespace {

constexpr auto kNoLists = kernels::GpuLists::none;
const StageId kEncoder{0}, kLlm{1};  // The first pipeline's, each on a node of its own.

/// At most ten seconds.
bool soon(const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;;) {
    if (is_so()) return true;
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

/// The tiny job, and batches of it.
struct World {
  JobSetup setup;
  ParallelPlan plan;
  SampleStore samples;

  explicit World(AttentionRule rule = AttentionRule::modality)
      : setup(prepare(job_of(rule)).value()), plan(make_parallel_plan(setup).value()) {}

  static job::Job job_of(AttentionRule rule) {
    job::Job job = tiny_job();
    job.modules.back().attention = rule;
    return job;
  }

  std::shared_ptr<const IterationPlan> iteration(std::int64_t batch) {
    auto planned = plan_tiny_batch(setup, plan, samples, batch);
    REQUIRE(planned.ok());
    return std::make_shared<const IterationPlan>(std::move(planned.value().iteration));
  }

  std::vector<PartKey> parts(const IterationPlan& iteration, StageId stage = kLlm) const {
    return traffic_of(plan, iteration, stage).parts;
  }
  std::int64_t count(const IterationPlan& iteration) const { return std::ssize(parts(iteration)); }

  void expect(MaskStore& masks, const std::shared_ptr<const IterationPlan>& iteration) const {
    masks.expect(iteration, plan, plan.node_of(kLlm), kNoLists);
  }

  Result<models::PackedBatch> take(MaskStore& masks, const IterationPlan& iteration,
                                   PartKey part) const {
    return masks.take(iteration, plan, kLlm, part);
  }

  /// What a stage makes without a store.
  models::PackedBatch made(const IterationPlan& iteration, PartKey part) const {
    return pack_text_shapes(plan.model, iteration.samples,
                            samples_of(plan, iteration, kLlm, part.microbatch, part.part))
        .value();
  }

  std::unique_ptr<ModelStage> stage(StageId id, MaskStore* masks) const {
    const auto kept = seeded_store(setup, plan, plan.at(id).devices.front()).value();
    return ModelStage::create(plan, id, setup.modules(), setup.layers, kept, masks).value();
  }
};

bool equal(const models::PackedBatch& a, const models::PackedBatch& b) {
  if (a.segments != b.segments || a.positions != b.positions) return false;
  if (a.mask == nullptr || b.mask == nullptr || !(a.mask->mask() == b.mask->mask())) return false;
  if (a.mask->block_count() != b.mask->block_count()) return false;
  for (std::int64_t block = 0; block < a.mask->block_count(); ++block)
    if (!std::ranges::equal(a.mask->of_block(block), b.mask->of_block(block))) return false;
  return true;
}

/// Makes masks, but is held up in its first one until it is let go.
struct SlowMaker {
  std::atomic<int> calls = 0;
  std::promise<void> go;
  std::shared_future<void> may_go = go.get_future().share();

  MaskStore::Maker maker() {
    return [this](auto samples, auto part, kernels::GpuLists lists) {
      // With an end, so that a test that fails ends.
      if (calls++ == 0) may_go.wait_for(std::chrono::seconds(20));
      return pack_text_shapes(AttentionRule::modality, samples, part, lists);
    };
  }
};

TEST_CASE("masks are there before anybody takes them, and are those made at once", "[engine]") {
  World world;
  const auto iteration = world.iteration(0);
  const auto parts = world.parts(*iteration);
  REQUIRE(parts.size() >= 2);
  MaskStore masks;
  world.expect(masks, iteration);
  REQUIRE(soon([&] { return masks.tally().ahead == std::ssize(parts); }));
  CHECK(masks.tally().held == std::ssize(parts));
  for (const PartKey part : parts) {
    const auto taken = world.take(masks, *iteration, part);
    REQUIRE(taken.ok());
    CHECK(equal(taken.value(), world.made(*iteration, part)));
  }
  CHECK(masks.tally().held == 0);
  CHECK(masks.tally().at_once == 0);
}

TEST_CASE("stages of a pipeline on one node share the masks of its parts", "[engine]") {
  World world;
  const StageId first{3}, second{4};  // The llm of the second pipeline; its encoder is 2.
  ParallelPlan plan = world.plan;
  plan.devices[3] = {plan.node_of(first), 1};
  const auto iteration = world.iteration(0);
  const auto parts = world.parts(*iteration, first);
  MaskStore masks;
  masks.expect(iteration, plan, plan.node_of(first), kNoLists);
  REQUIRE(soon([&] { return masks.tally().ahead == std::ssize(parts); }));
  for (const PartKey part : parts) {
    const std::int64_t held = masks.tally().held;
    const auto one = masks.take(*iteration, plan, first, part);
    CHECK(masks.tally().held == held);
    const auto other = masks.take(*iteration, plan, second, part);
    CHECK(masks.tally().held == held - 1);
    REQUIRE(one.ok());
    REQUIRE(other.ok());
    CHECK(one.value().mask != nullptr);
    CHECK(one.value().mask == other.value().mask);
  }
  CHECK(masks.tally().held == 0);
  CHECK(masks.tally().ahead == std::ssize(parts));
}

TEST_CASE("who comes early makes a mask itself, and waits for one that is being made", "[engine]") {
  World world;
  const auto iteration = world.iteration(0), next = world.iteration(1);
  const auto parts = world.parts(*iteration);
  SlowMaker slow;
  MaskStore masks(slow.maker());
  world.expect(masks, iteration);
  REQUIRE(soon([&] { return slow.calls == 1; }));  // The first one is being made.
  const auto second = world.take(masks, *iteration, parts[1]);
  REQUIRE(second.ok());
  CHECK(equal(second.value(), world.made(*iteration, parts[1])));
  CHECK(masks.tally().at_once == 1);
  auto first =
      std::async(std::launch::async, [&] { return world.take(masks, *iteration, parts[0]); });
  CHECK(first.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  slow.go.set_value();
  const auto taken = first.get();
  REQUIRE(taken.ok());
  CHECK(equal(taken.value(), world.made(*iteration, parts[0])));
  // Behind the next ones the thread has seen all of these, and none was made twice.
  world.expect(masks, next);
  const std::int64_t all = std::ssize(parts) + world.count(*next);
  REQUIRE(soon([&] { return masks.tally().ahead == all - 1; }));
  CHECK(slow.calls.load() == all);
}

TEST_CASE("what goes wrong with a mask hears who takes it", "[engine][errors]") {
  World world;
  const auto iteration = world.iteration(0);
  const auto parts = world.parts(*iteration);
  std::atomic<int> calls = 0;
  MaskStore masks([&](auto, auto, kernels::GpuLists) -> Result<models::PackedBatch> {
    if (calls++ == 0) return Error{Errc::invalid_argument, "a span out of order", {}, {}};
    throw std::runtime_error("no memory");
  });
  world.expect(masks, iteration);
  REQUIRE(soon([&] { return masks.tally().ahead == std::ssize(parts); }));
  const auto refused = world.take(masks, *iteration, parts[0]);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message == "a span out of order");
  CHECK_THROWS_AS(world.take(masks, *iteration, parts[1]), std::runtime_error);
}

TEST_CASE("masks of plans that were dropped are neither kept nor made", "[engine][recovery]") {
  World world;
  const auto dropped = world.iteration(0), next = world.iteration(1);
  const auto parts = world.parts(*dropped);
  SlowMaker slow;
  MaskStore masks(slow.maker());
  world.expect(masks, dropped);
  REQUIRE(soon([&] { return slow.calls == 1; }));
  CHECK(masks.tally().held == std::ssize(parts));
  masks.drop();
  CHECK(masks.tally().held == 0);
  world.expect(masks, next);
  slow.go.set_value();
  const std::int64_t count = world.count(*next);
  REQUIRE(soon([&] { return masks.tally().ahead == 1 + count; }));
  CHECK(slow.calls.load() == 1 + count);
  CHECK(masks.tally().held == count);
  // A step that still runs has its masks made in its own time.
  const auto taken = world.take(masks, *dropped, parts[0]);
  REQUIRE(taken.ok());
  CHECK(equal(taken.value(), world.made(*dropped, parts[0])));
}

TEST_CASE("a step that is tried again has masks of its own", "[engine][recovery]") {
  World world;
  const auto first = world.iteration(0);
  const auto again = std::make_shared<const IterationPlan>(*first);
  const auto parts = world.parts(*first);
  const std::int64_t count = std::ssize(parts);
  MaskStore masks;
  world.expect(masks, first);
  world.expect(masks, again);
  REQUIRE(soon([&] { return masks.tally().ahead == 2 * count; }));
  CHECK(masks.tally().held == 2 * count);
  for (const PartKey part : parts) REQUIRE(world.take(masks, *again, part).ok());
  CHECK(masks.tally().held == count);
  for (const PartKey part : parts) REQUIRE(world.take(masks, *first, part).ok());
  CHECK(masks.tally().held == 0);
}

TEST_CASE("masks are kept of two iterations at most", "[engine]") {
  World world;
  MaskStore masks;
  std::int64_t all = 0, before = 0;
  for (std::int64_t batch = 0; batch < 4; ++batch) {
    const auto iteration = world.iteration(batch);
    world.expect(masks, iteration);
    const std::int64_t count = world.count(*iteration);
    all += count;
    REQUIRE(soon([&] { return masks.tally().ahead == all; }));
    CHECK(masks.tally().held == before + count);
    before = count;
  }
}

TEST_CASE("an llm whose attention is causal has no masks", "[engine]") {
  World world(AttentionRule::causal);
  const auto iteration = world.iteration(0);
  MaskStore masks;
  world.expect(masks, iteration);
  CHECK(masks.tally().held == 0);
  const auto taken = world.take(masks, *iteration, world.parts(*iteration).front());
  REQUIRE(taken.ok());
  CHECK(taken.value().mask == nullptr);
}

TEST_CASE("a stage takes masks that were made ahead, with the bits of its own", "[engine]") {
  World world;
  const auto iteration = world.iteration(0);
  MaskStore masks;
  world.expect(masks, iteration);
  const auto parts = world.parts(*iteration);
  REQUIRE(soon([&] { return masks.tally().ahead == std::ssize(parts); }));
  const auto encoder = world.stage(kEncoder, nullptr), own = world.stage(kLlm, nullptr),
             ready = world.stage(kLlm, &masks);
  for (auto* stage : {encoder.get(), own.get(), ready.get()})
    REQUIRE(stage->begin(*iteration, world.samples).ok());
  for (const PartKey part : world.parts(*iteration, kEncoder)) REQUIRE(encoder->forward(part).ok());
  for (std::size_t i = 0; i < iteration->messages.size(); ++i) {
    if (iteration->messages[i].destination.stage != kLlm) continue;
    const auto rows = encoder->rows_for(MessageId{i});
    REQUIRE(rows.ok());
    own->accept_rows(MessageId{i}, rows.value().clone());
    ready->accept_rows(MessageId{i}, rows.value().clone());
  }
  for (const PartKey part : parts) {
    REQUIRE(own->forward(part).ok());
    REQUIRE(ready->forward(part).ok());
  }
  CHECK(masks.tally().held == 0);
  CHECK(masks.tally().at_once == 0);
  const auto expected = own->losses(), found = ready->losses();
  REQUIRE(found.size() == expected.size());
  REQUIRE_FALSE(found.empty());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i].sum == expected[i].sum);
}

TEST_CASE("a job's lists are those of its devices' kernels", "[engine]") {
  job::Job job = World::job_of(AttentionRule::modality);  // Heads of 8.
  CHECK(gpu_lists_of(job) == kernels::GpuLists::none);
  job.cluster.device = "cuda";
  CHECK(gpu_lists_of(job) == kernels::GpuLists::plain);
  job.train.dtype = Dtype::bf16;
  CHECK(gpu_lists_of(job) == kernels::GpuLists::bf16);
  job.modules.back().attention = AttentionRule::causal;
  CHECK(gpu_lists_of(job) == kernels::GpuLists::none);
}

TEST_CASE("lists are made for the kernels that heads of a size run on", "[engine]") {
  const auto lists_for = [](Dtype dtype, std::int32_t head_dim) {
    job::Job job = World::job_of(AttentionRule::modality);
    job.cluster.device = "cuda";
    job.train.dtype = dtype;
    auto config = models::LlmConfig{.num_hidden_layers = 2, .hidden_size = 16};
    config.head_dim = head_dim;
    job.modules.back().config = config;
    return gpu_lists_of(job);
  };
  CHECK(lists_for(Dtype::bf16, 128) == kernels::GpuLists::bf16);
  // Tensor cores take neither; they are computed in fp32.
  CHECK(lists_for(Dtype::bf16, 100) == kernels::GpuLists::plain);
  CHECK(lists_for(Dtype::bf16, 160) == kernels::GpuLists::plain);
  CHECK(lists_for(Dtype::fp64, 128) == kernels::GpuLists::plain);
  // No kernel of ours.
  CHECK(lists_for(Dtype::bf16, 264) == kernels::GpuLists::none);
  CHECK(lists_for(Dtype::fp64, 160) == kernels::GpuLists::none);
}

}  // namespace
}  // namespace troupe::engine
