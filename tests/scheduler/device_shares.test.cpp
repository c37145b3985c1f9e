#include "scheduler/layout/device_shares.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <random>

#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::draw;

GroupLoad load(std::int32_t layers, double work_ms) {
  GroupLoad made;
  made.layers = layers;
  made.work_ms = work_ms;
  made.largest_layer_ms = work_ms / layers;
  made.bytes = 10.0 * layers;
  made.largest_layer_bytes = 10;
  made.trained_bytes = 10.0 * layers;
  return made;
}

ShareRequest request_of(std::vector<GroupLoad> groups, std::int32_t devices,
                        std::int32_t llm_replicas) {
  ShareRequest request;
  request.groups = std::move(groups);
  request.devices = devices;
  request.llm_replicas = llm_replicas;
  request.microbatches = 3;
  request.reduction_ms = [](std::int32_t, std::int32_t, double) { return 0.0; };
  request.count = 64;
  return request;
}

TEST_CASE("devices are shared out where the work is", "[scheduler]") {
  // Encoder 18 ms and llm 12 ms a microbatch, of one layer each: two llms leave three devices.
  const auto request = request_of({load(1, 18), load(1, 12)}, 5, 2);
  const auto shares = share_devices(request);
  REQUIRE(shares.size() == 1);
  CHECK(shares[0].groups == std::vector<GroupShare>{{3, 1, 0}, {2, 1, 0}});
  // Of six microbatches each encoder has two, each llm three: 18 + 12, then max(18, 2 x 12).
  CHECK(shares[0].bound_ms == Approx(54));
}

TEST_CASE("an encoder replica has its part of all microbatches", "[scheduler]") {
  // One llm of two stages, or two of one and an encoder in two stages.
  auto request = request_of({load(2, 18), load(2, 12)}, 4, 1);
  const auto times = std::vector<GroupTimes>{{18, 0}, {6, 0}};
  // 3 microbatches on 2 encoders: the busiest has 2: 18 + 12 + max(18, 2 x 6).
  CHECK(shared_step_ms(request, {{2, 1, 0}, {1, 2, 0}}, times) == Approx(48));
  // One encoder for two llms has all six microbatches: 18 + 12 + max(5 x 18, 2 x 12).
  request.llm_replicas = 2;
  CHECK(shared_step_ms(request, {{1, 1, 0}, {2, 1, 0}}, {{18, 0}, {12, 0}}) == Approx(120));
  request.llm_replicas = 1;
  request.reduction_ms = [](std::int32_t replicas, std::int32_t, double bytes) {
    return replicas * bytes;
  };
  CHECK(shared_step_ms(request, {{2, 1, 0}, {1, 2, 0}}, {{18, 2}, {6, 3}}) == Approx(52));
}

TEST_CASE("shares keep pins and memory and room", "[scheduler]") {
  auto request = request_of({load(4, 18), load(4, 12)}, 7, 2);
  request.groups[0].pinned = 3;
  for (const auto& share : share_devices(request)) {
    CHECK(share.groups[0].replicas == 3);
    CHECK(share.groups[0].all_stages() + share.groups[1].all_stages() == 7);
  }
  // A stage of two layers holds 20 bytes; the llm then takes two stages for each replica.
  request.device_memory = 20;
  CHECK(share_devices(request).empty());  // Three encoders of 2 stages beside 4 devices: no.
  request.devices = 10;
  const auto shares = share_devices(request);
  REQUIRE_FALSE(shares.empty());
  for (const auto& share : shares)
    for (const auto& group : share.groups) CHECK(group.stages >= 2);
  request.device_memory = 9;
  CHECK(share_devices(request).empty());
}

TEST_CASE("one number for all is not a share", "[scheduler]") {
  // Of one layer each on four devices, two llms leave room for two encoders and no others.
  CHECK(share_devices(request_of({load(1, 12), load(1, 12)}, 4, 2)).empty());
  for (const bool may_idle : {false, true}) {
    auto request = request_of({load(3, 18), load(3, 3), load(3, 12)}, 12, 2);
    request.may_idle = may_idle;
    const auto shares = share_devices(request);
    CHECK_FALSE(shares.empty());
    for (const auto& share : shares)
      CHECK_FALSE((share.groups[0].replicas == 2 && share.groups[1].replicas == 2));
  }
}

TEST_CASE("devices that bring nothing may idle", "[scheduler]") {
  // The llm's one layer is the slowest: an encoder of 2 ms keeps up with six llms of 12 ms.
  auto request = request_of({load(1, 2), load(1, 12)}, 12, 6);
  request.may_idle = true;
  const auto shares = share_devices(request);
  REQUIRE_FALSE(shares.empty());
  CHECK(shares[0].groups[0].replicas < 6);
}

TEST_CASE("colocated encoders and the llm take turns on the same devices", "[scheduler]") {
  // Vision of one layer on all four devices, two llms of two stages, three microbatches each: two
  // for the busiest encoder. 18 + 12, then 18 + 2 x 6; both sums of gradients: 4 x 2 + 2 x 3.
  auto request = request_of({load(1, 18), load(2, 12)}, 4, 2);
  request.colocated = true;
  request.reduction_ms = [](std::int32_t replicas, std::int32_t, double bytes) {
    return replicas * bytes;
  };
  CHECK(shared_step_ms(request, {{4, 1, 0}, {2, 2, 0}}, {{18, 2}, {6, 3}}) == Approx(74));
  // On devices of their own they work at the same time.
  request.colocated = false;
  CHECK(shared_step_ms(request, {{4, 1, 0}, {2, 2, 0}}, {{18, 2}, {6, 3}}) == Approx(56));
}

TEST_CASE("colocated encoders fill the llm's devices as far as layers go", "[scheduler]") {
  auto request = request_of({load(2, 18), load(2, 12)}, 4, 2);
  request.colocated = true;
  std::vector<GroupShare> encoders;
  for (const auto& share : share_devices(request)) {
    CHECK(share.groups[1] == GroupShare{2, 2, 0});  // Every device has a stage of the llm.
    encoders.push_back(share.groups[0]);
  }
  // Two for two llms are pipelines; of three one has two stages; one has no more than layers.
  CHECK(encoders.size() == 3);
  for (const GroupShare& share : {GroupShare{4, 1, 0}, {3, 1, 1}, {1, 2, 0}})
    CHECK(std::find(encoders.begin(), encoders.end(), share) != encoders.end());
  // A stage of the llm that is two devices wide has two places.
  request.devices = 8;
  request.groups[1].width = 2;
  request.groups[0].pinned = 8;
  REQUIRE(share_devices(request).size() == 1);
  CHECK(share_devices(request)[0].groups[0] == GroupShare{8, 1, 0});
  request.groups[0].pinned = 9;
  CHECK(share_devices(request).empty());
  // Of two encoders each has what is best for it: 18 ms in three replicas, whose busiest has two of
  // six microbatches, as that of four would; 1 ms in one.
  request = request_of({load(1, 18), load(1, 1), load(2, 12)}, 4, 2);
  request.colocated = true;
  request.reduction_ms = [](std::int32_t replicas, std::int32_t, double) {
    return 5.0 * (replicas - 1);
  };
  const auto two = share_devices(request);
  REQUIRE(two.size() == 1);
  CHECK(two[0].groups == std::vector<GroupShare>{{3, 1, 0}, {1, 1, 0}, {2, 2, 0}});
}

/// The least bound over every number of encoders and stages.
double brute_force(const ShareRequest& request) {
  double best = std::numeric_limits<double>::infinity();
  const auto& [encoder, llm] = std::pair(request.groups[0], request.groups[1]);
  for (std::int32_t own = request.llm_replicas; own < request.devices; ++own)
    for (std::int32_t encoders = 1; encoders <= request.devices - own; ++encoders) {
      if (encoders == request.llm_replicas) continue;
      if (encoders > request.microbatches * request.llm_replicas) continue;
      const auto split = [](std::int32_t replicas, std::int32_t stages) {
        return GroupShare{replicas, stages / replicas, stages % replicas};
      };
      const auto a = split(encoders, request.devices - own), b = split(request.llm_replicas, own);
      const auto longest = [](const GroupShare& s) { return s.stages + (s.longer > 0 ? 1 : 0); };
      if (longest(a) > encoder.layers || longest(b) > llm.layers) continue;
      const auto slowest = [](const GroupLoad& l, const GroupShare& s) {
        return std::max(l.work_ms / s.stages, l.largest_layer_ms);
      };
      best = std::min(
          best, shared_step_ms(request, {a, b}, {{slowest(encoder, a), 0}, {slowest(llm, b), 0}}));
    }
  return best;
}

TEST_CASE("no share of one encoder and the llm has a smaller bound", "[scheduler][property]") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    auto request = request_of({load(draw(random, 1, 5), draw(random, 1, 40)),
                               load(draw(random, 1, 5), draw(random, 1, 40))},
                              draw(random, 2, 14), draw(random, 1, 5));
    request.microbatches = draw(random, 1, 6);
    const auto shares = share_devices(request);
    const double best = brute_force(request);
    INFO("seed " << seed);
    if (shares.empty()) {
      CHECK(best == std::numeric_limits<double>::infinity());
    } else {
      CHECK(shares.front().bound_ms == Approx(best));
    }
    CHECK(std::is_sorted(shares.begin(), shares.end(),
                         [](const auto& a, const auto& b) { return a.bound_ms < b.bound_ms; }));
  }
}

}  // namespace
}  // namespace troupe::scheduler
