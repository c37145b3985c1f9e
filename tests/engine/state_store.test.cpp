#include "tests/torch_catch.hpp"

#include "engine/state/state_store.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <random>

#include "engine/execution/model_stage.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/state/seeded_store.hpp"
#include "engine/state/state_transfer.hpp"
#include "scheduler/state/state_moves.hpp"
#include "tests/engine/apart_device.hpp"
#include "tests/engine/failing_transport.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/scheduler/random_plans.hpp"
#include "tests/scheduler/random_states.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::engine {
namespace {

using scheduler::testing::random_parameters;
using scheduler::testing::random_placement;

/// What a shard must hold: a number for every element of every parameter and kind, each another.
at::Tensor expected(const std::vector<ParameterInfo>& parameters, const ShardKey& key) {
  const ParameterInfo& info = parameters[key.parameter.index()];
  const double first = 10000.0 * (3 * key.parameter.value + static_cast<double>(key.kind));
  std::vector<std::int64_t> shape = info.shape;
  if (key.kind == StateKind::moments) shape.insert(shape.begin(), 2);
  std::int64_t count = 1;
  for (const auto size : shape) count *= size;
  at::Tensor whole = at::arange(first, first + static_cast<double>(count), at::kFloat).view(shape);
  for (std::size_t d = 0; d < key.box.size(); ++d)
    whole = whole.narrow(static_cast<std::int64_t>(d) + (key.kind == StateKind::moments ? 1 : 0),
                         key.box[d].begin, key.box[d].size());
  return whole;
}

/// Devices on three nodes whose stores hold what a placement says.
struct Machines {
  std::vector<ParameterInfo> parameters;
  JobSetup setup;  ///< Read where state begins from the seed, which nothing here does.
  std::map<std::int32_t, std::unique_ptr<transport::Transport>> transports;
  std::map<DeviceSlot, StateStore> stores;
  std::map<NodeId, int> came;  ///< Messages of state from each.

  Machines(std::vector<ParameterInfo> given, const StatePlacement& have, int per_node = 2)
      : parameters(std::move(given)) {
    transport::TransportOptions options;
    options.hub = std::make_shared<transport::InprocHub>();
    for (options.self = 0; options.self < 3; ++options.self)
      transports[options.self] = transport::create_transport("inproc", options).value();
    for (auto& [node, transport] : transports)
      for (auto& [peer, other] : transports)
        REQUIRE(transport->connect(peer, other->address()).ok());
    for (std::int32_t node = 0; node < 3; ++node)
      for (std::int32_t device = 0; device < per_node; ++device) {
        const DeviceSlot slot{NodeId{node}, device};
        StateStore& store =
            stores.emplace(slot, StateStore(slot, parameters, Dtype::fp32)).first->second;
        REQUIRE(store.stage(have).ok());
        store.settle();
        for (const ShardKey& key : store.keys()) store.held(key).copy_(expected(parameters, key));
      }
  }

  /// Stages `want` everywhere and lets all devices fetch in turn. The n-th receive of all fails.
  /// `is_late`: each has turned over when it has begun.
  Status fetch(const StatePlacement& want, const std::vector<StateMove>& moves,
               std::optional<int> failing = {}, bool is_late = false) {
    int receives = 0;
    std::map<std::int32_t, FailingTransport> failing_transports;
    for (auto& [node, inner] : transports)
      failing_transports.emplace(std::piecewise_construct, std::forward_as_tuple(node),
                                 std::forward_as_tuple(*inner, receives, failing));
    std::vector<std::unique_ptr<StateTransfer>> transfers;
    for (auto& [slot, store] : stores) {
      REQUIRE(store.stage(want).ok());
      transfers.push_back(std::make_unique<StateTransfer>(
          store, setup, moves, failing_transports.at(slot.node.value), 7, std::filesystem::path{},
          [] {}, [this](NodeId from) { ++came[from]; }));
    }
    for (int round = 0; round < 1000; ++round) {
      bool all = true;
      for (auto& transfer : transfers) {
        auto done = transfer->advance();
        if (!done.ok()) return std::move(done).error();
        all = all && done.value();
      }
      if (is_late && round == 0)
        for (auto& [slot, store] : stores) store.settle(/*is_late=*/true);
      if (all) return Done{};
    }
    return Error{Errc::timed_out, "never fetched", {}, {}};
  }

  void settle() {
    for (auto& [slot, store] : stores) store.settle();
  }

  /// Every device holds exactly what the placement gives it, with the right contents.
  void check(const StatePlacement& placement) {
    for (auto& [slot, store] : stores) {
      std::vector<ShardKey> keys;
      for (const Shard& shard : placement)
        if (std::binary_search(shard.holders.begin(), shard.holders.end(), slot))
          keys.push_back(shard.key);
      const bool exactly = store.keys() == keys;
      CHECK(exactly);
      for (const ShardKey& key : store.keys())
        CHECK(at::equal(store.held(key), expected(parameters, key)));
    }
  }
};

TEST_CASE("any placement turns into any other one, to the bit and with nothing left over",
          "[engine][property]") {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto parameters = random_parameters(random);
    const auto have = random_placement(parameters, random);
    const auto want = random_placement(parameters, random);
    Machines machines(parameters, have);
    const auto moves =
        scheduler::plan_state_moves(parameters, Dtype::fp32, have, want).value().moves;
    REQUIRE(machines.fetch(want, moves).ok());
    machines.check(have);  // Nobody has turned over yet.
    machines.settle();
    machines.check(want);
  }
}

/// Two layouts of a model on grids of devices, of which none has overlapping shards.
struct TwoLayouts {
  std::vector<ParameterInfo> parameters;
  StatePlacement have, want;

  explicit TwoLayouts(std::uint32_t seed) {
    std::mt19937 random(seed);
    const auto model = scheduler::testing::random_model(random);
    parameters = scheduler::testing::parameters_for(model, random);
    const auto placed = [&] {
      for (;;) {
        auto placement = scheduler::place_state(
            scheduler::testing::random_grid_plan(random, model, scheduler::testing::kLargeGrids),
            parameters, Dtype::fp32);
        if (std::none_of(placement.begin(), placement.end(), [&](const Shard& shard) {
              return std::any_of(shard.holders.begin(), shard.holders.end(),
                                 [&](const DeviceSlot& device) {
                                   return scheduler::testing::overlaps(placement, shard, device);
                                 });
            }))
          return placement;
      }
    };
    have = placed();
    want = placed();
  }

  std::vector<StateMove> moves() const {
    return scheduler::plan_state_moves(parameters, Dtype::fp32, have, want).value().moves;
  }
};

TEST_CASE("any layout turns into any other one, its grids too", "[engine][property]") {
  std::size_t moved = 0;
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    const TwoLayouts layouts(seed);
    Machines machines(layouts.parameters, layouts.have, scheduler::testing::kLargeGrids.per_node);
    const auto moves = layouts.moves();
    REQUIRE(machines.fetch(layouts.want, moves).ok());
    machines.check(layouts.have);
    machines.settle();
    machines.check(layouts.want);
    moved += moves.size();
  }
  CHECK(moved > 10'000);
}

/// REQUIRES: the n-th fetch of all is one of these moves.
void check_failure(Machines& machines, const StatePlacement& have, const StatePlacement& want,
                   const std::vector<StateMove>& moves, int failing) {
  CAPTURE(failing);
  CHECK_FALSE(machines.fetch(want, moves, failing).ok());
  for (auto& [slot, store] : machines.stores) store.abandon();
  machines.check(have);
  for (auto& [slot, store] : machines.stores)
    for (const Shard& shard : want) CHECK_FALSE(store.incoming(shard.key).defined());
}

int fetches(const std::vector<StateMove>& moves) {
  return static_cast<int>(std::count_if(
      moves.begin(), moves.end(), [](const StateMove& move) { return move.from != move.to; }));
}

TEST_CASE("a change that fails at any fetch leaves every store as it was", "[engine][property]") {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto parameters = random_parameters(random);
    const auto have = random_placement(parameters, random);
    const auto want = random_placement(parameters, random);
    const auto moves =
        scheduler::plan_state_moves(parameters, Dtype::fp32, have, want).value().moves;
    for (int failing = 0; failing < fetches(moves); ++failing) {
      Machines machines(parameters, have);
      check_failure(machines, have, want, moves, failing);
    }
  }
}

TEST_CASE("a change of grids that fails at some fetch leaves every store as it was",
          "[engine][property]") {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    const TwoLayouts layouts(seed);
    const auto moves = layouts.moves();
    if (fetches(moves) == 0) continue;
    const int count = fetches(moves);
    const int step = seed < 25 ? 1 : count;  // Every fetch of some, one of the others.
    for (int failing = static_cast<int>(seed) % step; failing < count; failing += step) {
      Machines machines(layouts.parameters, layouts.have, scheduler::testing::kLargeGrids.per_node);
      check_failure(machines, layouts.have, layouts.want, moves, failing);
    }
  }
}

TEST_CASE("a large shard comes in messages of 4 MiB, and each counts", "[engine]") {
  constexpr std::int64_t kElements = (std::int64_t{6} << 20) / 4 + 1;  // Of four bytes.
  const std::vector<ParameterInfo> parameters{{"a", {kElements}, {{ModuleId{0}, 0}}, true}};
  const DeviceSlot first{NodeId{0}, 0}, second{NodeId{1}, 0};
  StatePlacement have, want;
  for (const StateKind kind : {StateKind::value, StateKind::moments}) {
    const ShardKey key{ParameterId{0}, kind, whole_box(parameters[0].shape)};
    have.push_back({key, {first}});
    want.push_back({key, {first, second}});
  }
  Machines machines(parameters, have, 1);
  const auto moves = scheduler::plan_state_moves(parameters, Dtype::fp32, have, want).value().moves;
  REQUIRE(moves.size() == 2);
  REQUIRE(machines.fetch(want, moves).ok());
  machines.settle();
  machines.check(want);
  // The value is 4 bytes longer than 6 MiB, both moments are 8 bytes longer than 12.
  CHECK((machines.came == std::map<NodeId, int>{{NodeId{0}, 2 + 4}}));
}

TEST_CASE("what arrives behind the turnover is kept once it is told to be", "[engine][property]") {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto parameters = random_parameters(random);
    const auto have = random_placement(parameters, random);
    // Nobody lets go of anything.
    auto want = have;
    const auto more = random_placement(parameters, random);
    for (const Shard& shard : more) {
      auto same = std::find_if(want.begin(), want.end(),
                               [&](const Shard& other) { return other.key == shard.key; });
      if (same == want.end()) same = want.insert(want.end(), {shard.key, {}});
      for (const DeviceSlot& slot : shard.holders)
        if (!std::binary_search(same->holders.begin(), same->holders.end(), slot))
          same->holders.insert(std::upper_bound(same->holders.begin(), same->holders.end(), slot),
                               slot);
    }
    std::sort(want.begin(), want.end(),
              [](const Shard& a, const Shard& b) { return a.key < b.key; });
    const auto moves =
        scheduler::plan_state_moves(parameters, Dtype::fp32, have, want).value().moves;
    const bool is_kept = seed % 2 == 0;
    Machines machines(parameters, have);
    REQUIRE(machines.fetch(want, moves, {}, /*is_late=*/true).ok());
    machines.check(want);
    for (const StateMove& move : moves)  // What has not been asked for yet finds its room.
      CHECK(machines.stores.at(move.to).incoming(move.piece).defined());
    if (is_kept)
      for (auto& [slot, store] : machines.stores) store.keep_late();
    for (auto& [slot, store] : machines.stores) REQUIRE(store.stage(want).ok());
    machines.check(is_kept ? want : have);
  }
}

TEST_CASE("shards of a layer and kind lie one behind the other", "[engine]") {
  const std::vector<ParameterInfo> parameters{{"a", {2, 3}, {{ModuleId{0}, 0}}, true},
                                              {"b", {4}, {{ModuleId{0}, 0}}, true},
                                              {"c", {4}, {{ModuleId{0}, 1}}, true}};
  const DeviceSlot slot{NodeId{0}, 0};
  StateStore store(slot, parameters, Dtype::fp32);
  StatePlacement want;
  for (std::int32_t p = 0; p < 3; ++p)
    want.push_back({{ParameterId{p}, StateKind::value,
                     whole_box(parameters[static_cast<std::size_t>(p)].shape)},
                    {slot}});
  REQUIRE(store.stage(want).ok());
  store.settle();
  const auto* a = store.held(want[0].key).const_data_ptr<float>();
  CHECK(store.held(want[1].key).const_data_ptr<float>() == a + 32);  // At a cache line.
  CHECK_FALSE(store.held(want[2].key).is_alias_of(store.held(want[0].key)));
}

TEST_CASE("moments that are in host memory lie there, and nothing else does", "[engine]") {
  std::vector<ParameterInfo> parameters{{"a", {2, 3}, {{ModuleId{0}, 0}}, true},
                                        {"b", {4}, {{ModuleId{0}, 0}}, true}};
  parameters[0].moments_in_host = true;
  const DeviceSlot slot{NodeId{0}, 0};
  StateStore store(slot, parameters, Dtype::bf16, apart().place);
  StatePlacement want;
  for (std::int32_t p = 0; p < 2; ++p)
    for (const StateKind kind : {StateKind::value, StateKind::master, StateKind::moments})
      want.push_back(
          {{ParameterId{p}, kind, whole_box(parameters[static_cast<std::size_t>(p)].shape)},
           {slot}});
  REQUIRE(store.stage(want).ok());
  store.settle();
  for (const Shard& shard : want) {
    const bool in_host =
        shard.key.parameter == ParameterId{0} && shard.key.kind != StateKind::value;
    CHECK(store.held(shard.key).is_cpu() == in_host);
  }
}

TEST_CASE("pinned memory that runs out is short host memory, not a failed device",
          "[engine][errors]") {
  std::vector<ParameterInfo> parameters{{"a", {2, 3}, {{ModuleId{0}, 0}}, true}};
  parameters[0].moments_in_host = true;
  const DeviceSlot slot{NodeId{1}, 0};
  StateStore store(slot, parameters, Dtype::fp32, apart().place);
  StatePlacement want;
  want.push_back({{ParameterId{0}, StateKind::moments, whole_box(parameters[0].shape)}, {slot}});
  setenv("APART_PINNED_ERROR", "2", 1);  // As `cudaHostAlloc` says it.
  const Status staged = store.stage(want);
  setenv("APART_PINNED_ERROR", "214", 1);
  CHECK_THROWS_AS(store.stage(want), c10::AcceleratorError);
  unsetenv("APART_PINNED_ERROR");
  REQUIRE_FALSE(staged.ok());
  CHECK(staged.error().code == Errc::infeasible);
  CHECK(staged.error().message ==
        "no host memory for the moments that the layout gives to device 0 of node 1: CUDA error: "
        "number 2");
  CHECK(staged.error().fix.starts_with("give the job more memory or more nodes"));
  CHECK_FALSE(store.incoming(want[0].key).defined());
  CHECK(store.stage(want).ok());
  CHECK(store.incoming(want[0].key).is_cpu());
}

TEST_CASE("state from the seed is what layers are made with", "[engine]") {
  for (const Dtype dtype : {Dtype::fp64, Dtype::bf16}) {
    auto job = tiny_job();
    job.train.dtype = dtype;
    const JobSetup setup = prepare(job).value();
    const ParallelPlan plan = make_parallel_plan(setup).value();
    const auto store = seeded_store(setup, plan, DeviceId{0}).value();
    const auto spec = plan.model.at(ModuleId{0});
    for (std::int32_t index = 0; index < static_cast<std::int32_t>(spec.layers.size()); ++index) {
      const auto made =
          models::make_layer(setup.modules()[0], setup.modules(), index, setup.layers).value();
      auto options = setup.layers;
      options.only.emplace();
      const auto bound =
          models::make_layer(setup.modules()[0], setup.modules(), index, options).value();
      REQUIRE(store.bind(*bound).ok());
      for (std::size_t p = 0; p < made->parameters().size(); ++p) {
        const auto& value = bound->parameters()[p].value;
        CHECK(at::equal(value, made->parameters()[p].value));
        CHECK(value.requires_grad());
        CHECK(value.is_leaf());
        auto* const pointer = &bound->parameters()[p];
        const auto kept = store.optimizers({pointer}).front();
        CHECK(kept.exp_avg.count_nonzero().item<std::int64_t>() == 0);
        CHECK(kept.exp_avg_sq.count_nonzero().item<std::int64_t>() == 0);
        CHECK(kept.master.defined() == (dtype == Dtype::bf16));
        if (kept.master.defined()) CHECK(at::equal(kept.master, value.detach().to(at::kFloat)));
      }
    }
  }
}

TEST_CASE("a stage without its parameters is an error, not a crash", "[engine][errors]") {
  const JobSetup setup = prepare(tiny_job()).value();
  const ParallelPlan plan = make_parallel_plan(setup).value();
  const StateStore empty({NodeId{0}, 0}, setup.parameters, Dtype::fp64);
  const auto stage = ModelStage::create(plan, StageId{0}, setup.modules(), setup.layers, empty);
  REQUIRE_FALSE(stage.ok());
  CHECK(stage.error().message.find("vision.patch_embed") != std::string::npos);
}

}  // namespace
}  // namespace troupe::engine
