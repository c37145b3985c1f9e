#include "scheduler/layout/layout.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>

#include "scheduler/cost/profile_batch.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::draw;

/// vision (4 layers) -> llm (8 layers), one kind of sample: 12 and 24 ms, forward and backward.
LayoutInput two_modules() {
  LayoutInput input;
  input.modules = {{"vision", {1}, false, 4, 400, {1}, {1}, {}},
                   {"llm", {}, false, 8, 800, {1}, {1}, {}}};
  input.samples = {{{4, 8, 10, 0}, {8, 16, 10, 0}}};
  input.devices = 6;
  input.devices_per_node = 6;
  input.device_memory_bytes = 1e6;
  input.global_batch = 12;
  input.microbatch_sizes = {1};
  return input;
}

TEST_CASE("equal stages win and the step is fills plus slowest stages", "[scheduler]") {
  // dp 1, six stages: vision 2 x 6 ms, llm 4 x 6 ms: 36 + 11 x 6 = 102. dp 2 has three stages per
  // replica (12; 12 + 12): 36 + 5 x 12 = 96. dp 3: 12; 24: 36 + 3 x 24 = 108.
  const auto choice = search_layout(two_modules()).value();
  CHECK(choice.expected_step_ms == Approx(96));
  CHECK(choice.modules[0].pp == 1);
  CHECK(choice.modules[1].pp == 2);
  CHECK(choice.modules[1].dp == 2);
  CHECK(choice.modules[1].cuts == std::vector<std::int32_t>{0, 4, 8});
  // State 800 / 2 and two microbatches in flight of 10 / 2 each; vision: 400 and three of 10.
  CHECK(choice.modules[1].memory_bytes == Approx(410));
  CHECK(choice.modules[0].memory_bytes == Approx(430));
}

TEST_CASE("memory forbids layouts that are faster", "[scheduler]") {
  auto input = two_modules();
  input.device_memory_bytes = 300;  // vision needs two stages, the llm three or four.
  const auto choice = search_layout(input).value();
  CHECK(choice.modules[0].pp == 2);
  CHECK(choice.modules[1].pp == 4);
  CHECK(choice.expected_step_ms == Approx(102));
}

TEST_CASE("a frozen encoder takes no backward time", "[scheduler]") {
  auto input = two_modules();
  input.modules[0].freeze = true;  // vision 4 ms, llm 24 ms: 1 + 4 stages of 6 is 28 + 11 x 6 = 94;
  input.devices = 5;               // dp 1 only: 5 devices.
  const auto choice = search_layout(input).value();
  CHECK(choice.expected_step_ms == Approx(94));
}

TEST_CASE("resharding costs what moves over the link, there and back", "[scheduler]") {
  auto input = two_modules();
  input.devices = 3;
  input.devices_per_node = 2;
  input.global_batch = 1;
  input.modules[1].valid_tp = {2};
  input.samples[0][0].boundary_bytes = 3e6;
  input.network_gigabytes_per_s = 1;  // 3 MB twice at 1 GB/s: 6 ms; a replica spans nodes.
  const auto choice = search_layout(input).value();
  CHECK(choice.expected_step_ms == Approx(12 + 12 + 6));
}

TEST_CASE("dflop looks at every microbatch, entrain at their mean", "[scheduler]") {
  // Three devices, one layer each: two devices for the encoder (6.2 ms, always) or for the llm (0
  // or 12 ms, 6 on average). By means the encoder should have them: max(3.1, 6) is below max(6.2,
  // 3). Microbatch by microbatch it is max(3.1, 0) or max(3.1, 12), some 7.5 on average,
  // against 6.2 for any: (4 + 2 - 1) x 6.2 = 31. Entrain: 3.1 + 6 + 3 x 6 = 27.1, not 6.2 + 3 + 3
  // x 6.2 = 27.8.
  auto input = two_modules();
  input.modules = {{"vision", {1}, true, 1, 1, {1, 2}, {1}, {}},
                   {"llm", {}, false, 1, 1, {1, 2}, {1}, {}}};
  input.samples = {{{6.2, 0, 0, 0}, {0, 0, 0, 0}}, {{6.2, 0, 0, 0}, {12, 0, 0, 0}}};
  input.devices = input.devices_per_node = 3;
  input.global_batch = 4;
  input.objective = LayoutObjective::dflop;
  const auto each = search_layout(input).value();
  CHECK(each.modules[0].tp == 1);
  CHECK(each.modules[1].tp == 2);
  CHECK(each.expected_step_ms == Approx(31));
  input.objective = LayoutObjective::entrain;
  const auto mean = search_layout(input).value();
  CHECK(mean.modules[0].tp == 2);
  CHECK(mean.modules[1].tp == 1);
  CHECK(mean.expected_step_ms == Approx(27.1));
}

TEST_CASE("three modules keep to their devices and memory", "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    LayoutInput input = two_modules();
    input.modules.insert(input.modules.begin(), {"audio", {2}, false, 3, 100, {1, 2}, {1}, {}});
    input.modules[1].next = {2};
    input.devices = draw(random, 3, 40);
    input.global_batch = 16;
    input.objective = seed % 2 == 0 ? LayoutObjective::dflop : LayoutObjective::entrain;
    input.samples = {{{draw(random, 1, 9) * 1.0, 2, 5, 0}, {4, 8, 10, 0}, {8, 16, 10, 0}}};
    const auto choice = search_layout(input).value();
    std::int32_t used = 0;
    for (std::size_t m = 0; m < 3; ++m) {
      used += choice.modules[m].devices();
      CHECK(choice.modules[m].memory_bytes <= input.device_memory_bytes);
      CHECK(choice.modules[m].cuts.back() == input.modules[m].layers);
      CHECK(choice.modules[m].cuts.size() == static_cast<std::size_t>(choice.modules[m].pp) + 1);
    }
    CHECK(used <= input.devices);
    // More devices never make it slower.
    input.devices += 3;
    CHECK(search_layout(input).value().expected_step_ms <= choice.expected_step_ms + 1e-9);
  }
}

TEST_CASE("encoders that share devices keep what a window has room for", "[scheduler]") {
  // 650 bytes for two devices: too few for whole modules, so both are cut in two, 600 bytes of
  // state and 5 for a microbatch. Beside the llm's two in flight 40 bytes are left for vision:
  // eight microbatches of twelve, two windows. vision 2 x 12 + 10 x 6 ms, the llm 2 x 24 + 10 x 12.
  auto input = two_modules();
  input.placement = Placement::shared;
  input.devices = 2;
  const auto at = [&](double bytes) {
    input.device_memory_bytes = bytes;
    return search_layout(input).value();
  };
  CHECK(at(650).expected_step_ms == Approx(84 + 168));
  CHECK(at(650).modules[0].memory_bytes == Approx(200 + 8 * 5));
  CHECK(at(650).modules[1].memory_bytes == Approx(400 + 2 * 5));
  // Room for all twelve, which is not so in a half: 12 + 11 x 6 and 24 + 11 x 12.
  CHECK(at(670).expected_step_ms == Approx(78 + 156));
  CHECK(at(670).modules[0].memory_bytes == Approx(200 + 12 * 5));
  // Four at a time, and one, which takes the time of twelve fills.
  CHECK(at(630).expected_step_ms == Approx(90 + 180));
  CHECK(at(630).modules[0].memory_bytes == Approx(200 + 4 * 5));
  CHECK(at(614).expected_step_ms == Approx(144 + 288));
  CHECK(at(614).modules[1].memory_bytes == Approx(400 + 5));
  input.device_memory_bytes = 609;  // Not one microbatch of each.
  CHECK_FALSE(search_layout(input).ok());
  // DFLOP: (12 + 2 x 1) stages of both.
  input.objective = LayoutObjective::dflop;
  CHECK(at(650).expected_step_ms == Approx(14 * 6 + 14 * 12));
}

TEST_CASE("rows that wait for the llm make windows of shared devices narrower", "[scheduler]") {
  // As above at 650 bytes: 40 are left for vision beside the llm's two in flight. A microbatch of a
  // window has 5 of activations and, where rows count, 5 that wait, or as much of gradients: four
  // microbatches fit, three windows. vision 3 x 12 + 9 x 6 ms, the llm 3 x 24 + 9 x 12.
  auto input = two_modules();
  input.placement = Placement::shared;
  input.devices = 2;
  input.device_memory_bytes = 650;
  input.samples = {{{4, 8, 10, 5}, {8, 16, 10, 0}}};
  CHECK(search_layout(input).value().expected_step_ms == Approx(84 + 168));
  input.counts_rows = true;
  CHECK(search_layout(input).value().expected_step_ms == Approx(90 + 180));
  CHECK(search_layout(input).value().modules[0].memory_bytes == Approx(200 + 4 * 5));
  // Frozen, vision takes 4 ms alone. No gradients come, and as many rows wait: 3 x 4 + 9 x 2.
  input.modules[0].freeze = true;
  CHECK(search_layout(input).value().expected_step_ms == Approx(30 + 180));
  input.placement = Placement::disjoint;  // Nobody waits for a window there.
  input.devices = 4;
  const double apart = search_layout(input).value().expected_step_ms;
  input.counts_rows = false;
  CHECK(search_layout(input).value().expected_step_ms == apart);
}

TEST_CASE("what is in host memory while the llm computes leaves it room", "[scheduler]") {
  // As above: of 5 bytes of a microbatch of vision 4 move. Beside the llm's two in flight and one
  // microbatch that is back 36 are left, and all twelve fit into a window.
  auto input = two_modules();
  input.placement = Placement::shared;
  input.devices = 2;
  input.device_memory_bytes = 650;
  input.modules[0].offloaded_share = 0.8;
  const auto choice = search_layout(input).value();
  CHECK(choice.expected_step_ms == Approx(12 + 11 * 6 + 24 + 11 * 12));
  CHECK(choice.modules[0].memory_bytes == Approx(200 + 4 + 12));
  CHECK(choice.modules[0].host_memory_bytes == Approx(12 * 4));
  CHECK(choice.modules[1].host_memory_bytes == 0);
  // One of each at least: 600 of state, and 5 + 5; or 1 that stays and 5 in turn.
  const auto fits = [&](double bytes) {
    input.device_memory_bytes = bytes;
    return search_layout(input).ok();
  };
  CHECK(fits(606));
  CHECK_FALSE(fits(605.5));
  CHECK(search_layout(input).error().message.ends_with("all modules together 606"));
  input.modules[0].offloaded_share = 0;
  CHECK(fits(610));
  CHECK_FALSE(fits(609.5));
  // Of vision's 200 on a device 50 leave: the llm's 5 have their place.
  input.modules[0].leaving_bytes = 100;
  CHECK(fits(605));
  CHECK(search_layout(input).value().modules[0].host_memory_bytes == 50);
  CHECK_FALSE(fits(604.5));
  // Apart nobody takes turns.
  input.placement = Placement::disjoint;
  input.devices = 4;
  CHECK(fits(400 + 2 * 5));
  CHECK(search_layout(input).value().modules[0].host_memory_bytes == 0);
  CHECK_FALSE(fits(409.5));
  for (const double wrong : {-0.1, 1.1}) {
    input.modules[0].offloaded_share = wrong;
    CHECK(search_layout(input).error().code == Errc::invalid_argument);
  }
}

TEST_CASE("an llm that has no room for its depth waits for itself", "[scheduler]") {
  // The llm alone in four stages of 200 bytes, 2.5 for a microbatch; vision frozen and small.
  auto input = two_modules();
  input.placement = Placement::shared;
  input.modules[0] = {"vision", {1}, true, 1, 0, {1}, {1}, {}};
  input.samples = {{{0, 0, 0, 0}, {8, 16, 10, 0}}};
  input.devices = 4;
  const auto at = [&](double bytes) {
    input.device_memory_bytes = bytes;
    return search_layout(input).value();
  };
  // 10 bytes are left, and vision has no use for any of them.
  CHECK(at(210).expected_step_ms == Approx(24 + 11 * 6));
  // Two microbatches where four would be in flight.
  CHECK(at(205).expected_step_ms == Approx(24 + 11 * 6 * 2));
  CHECK(at(205).modules[1].memory_bytes == Approx(200 + 2 * 2.5));
}

TEST_CASE("sums of gradients and updates end a step", "[scheduler]") {
  // A device each: 36 + 11 x 24 ms; then the llm updates 800 bytes, 100 in a millisecond, while
  // vision updates 400. One replica has nothing to sum up.
  auto input = two_modules();
  input.devices = 2;
  input.devices_per_node = 1;
  input.modules[0].gradient_bytes = 1e6;
  input.modules[1].gradient_bytes = 3e6;
  input.network_gigabytes_per_s = 1;  // A megabyte in a millisecond.
  input.update_gigabytes_per_s = 1e-4;
  CHECK(search_layout(input).value().expected_step_ms == Approx(300 + 8));
  input.objective = LayoutObjective::dflop;  // 13 x 24.
  CHECK(search_layout(input).value().expected_step_ms == Approx(312 + 8));
  input.objective = LayoutObjective::entrain;
  // Both on both devices: 6 x 12 + 6 x 24; the two copies move half of it twice, one module after
  // the other: 1 + 4 + 3 + 8.
  input.placement = Placement::shared;
  CHECK(search_layout(input).value().expected_step_ms == Approx(216 + 16));
  // Inside a node over its link.
  input.devices_per_node = 2;
  input.node_gigabytes_per_s = 10;
  CHECK(search_layout(input).value().expected_step_ms == Approx(216 + 12.4));
  // Two of four copies on a node: they share half of it twice over the network, and half over the
  // link.
  input.devices = 4;
  CHECK(search_layout(input).value().expected_step_ms == Approx(108 + 12 + 0.5 * 4 + 0.1 * 4));
  input.modules[0].gradient_bytes = NAN;
  CHECK_FALSE(search_layout(input).ok());
}

TEST_CASE("what cannot be laid out names the rule and what would work", "[scheduler][errors]") {
  const auto message = [](const LayoutInput& input, Errc code) {
    const auto choice = search_layout(input);
    REQUIRE_FALSE(choice.ok());
    CHECK(choice.error().code == code);
    return choice.error().message + " | " + choice.error().fix;
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    INFO(text);
    return text.find(part) != std::string::npos;
  };
  auto input = two_modules();
  input.microbatch_sizes = {5};
  CHECK(contains(message(input, Errc::infeasible), "batch of 10"));
  input = two_modules();
  input.devices = 1;
  CHECK(contains(message(input, Errc::infeasible), "at least 2 devices"));
  input = two_modules();
  input.device_memory_bytes = 50;
  CHECK(contains(message(input, Errc::infeasible), "module 'llm' alone needs at least 202"));
  input = two_modules();
  input.modules[0].valid_tp = {8};
  CHECK(contains(message(input, Errc::infeasible), "module 'vision' has no valid tp x cp"));
  input = two_modules();
  input.modules[1].next = {0};
  message(input, Errc::invalid_argument);
  input = two_modules();
  input.samples[0][0].forward_ms = std::nan("");
  message(input, Errc::invalid_argument);
  input = two_modules();
  input.samples.clear();
  message(input, Errc::invalid_argument);
}

TEST_CASE("59 equal batches show stability for 5 percent and 5 percent", "[scheduler]") {
  CHECK(validation_trials(0.05, 0.05) == 59);  // Entrain: ceil(ln 0.05 / ln 0.95).
  ProfileBatchInput input;
  input.samples = {{1, 3}};
  input.devices = 16;
  input.dp = 2;
  const auto stable = profile_batch(input).value();
  CHECK(stable.b_min == 1);
  CHECK(stable.trials == 59);
  CHECK(stable.allocation == std::vector<std::int32_t>{2, 6});
}

TEST_CASE("uneven samples need larger batches, coarser allocations smaller ones", "[scheduler]") {
  ProfileBatchInput input;
  std::mt19937 random(7);
  for (int s = 0; s < 400; ++s)
    input.samples.push_back({1.0 + draw(random, 0, 100), 30.0 + draw(random, 0, 300)});
  input.devices = 4;
  const auto coarse = profile_batch(input).value();
  input.devices = 12;
  const auto fine = profile_batch(input).value();
  CHECK(coarse.b_min >= 2);
  CHECK(fine.b_min > coarse.b_min);
  CHECK(profile_batch(input).value().b_min == fine.b_min);
}

TEST_CASE("a batch that is too small for the data's mix is warned about, and no other",
          "[scheduler]") {
  // Every second sample is all encoder, the others all llm: a batch of one is never the mix, and
  // one of a few rarely.
  ProfileBatchInput input;
  input.samples = {{1, 0}, {0, 1}};
  input.devices = 3;
  CHECK(smallest_batch(input).value() == 0);  // 1.5 devices each: on the border for ever.
  input.samples = {{1, 0}, {0, 2}};
  const auto b_min = smallest_batch(input).value();
  CHECK(b_min > 2);
  CHECK(b_min == profile_batch(input).value().b_min);
  const auto warning = batch_warning(b_min - 1, b_min);
  CHECK(warning.find(std::to_string(b_min - 1) + " samples") != std::string::npos);
  CHECK(warning.find("from " + std::to_string(b_min) + " on") != std::string::npos);
  CHECK(batch_warning(b_min, b_min).empty());
  CHECK(batch_warning(1, 0).empty());
  input.devices = 1;  // Fewer devices than modules: nothing is allocated by work.
  CHECK(smallest_batch(input).value() == 0);
  input.samples.clear();
  CHECK(smallest_batch(input).error().code == Errc::invalid_argument);
}

TEST_CASE("proportional allocation gives every module a device and all of them",
          "[scheduler][property]") {
  CHECK(proportional_allocation({1, 0.98}, 2) == std::vector<std::int32_t>{1, 1});
  CHECK(proportional_allocation({0, 10, 0}, 5) == std::vector<std::int32_t>{1, 3, 1});
  CHECK(proportional_allocation({0, 0}, 4) == std::vector<std::int32_t>{2, 2});
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::vector<double> work;
    const int modules = draw(random, 1, 5);
    for (int m = 0; m < modules; ++m) work.push_back(draw(random, 0, 50));
    const int devices = draw(random, modules, 40);
    const auto allocation = proportional_allocation(work, devices);
    std::int32_t sum = 0;
    for (const auto count : allocation) {
      CHECK(count >= 1);
      sum += count;
    }
    CHECK(sum == devices);
  }
}

TEST_CASE("a mix on the border of two allocations and bad input are refused",
          "[scheduler][errors]") {
  ProfileBatchInput input;
  input.samples = {{1, 3}, {3, 1}};
  input.devices = 3;  // 1.5 : 1.5.
  input.first_size = 1 << 20;
  const auto border = profile_batch(input);
  REQUIRE_FALSE(border.ok());
  CHECK(border.error().code == Errc::infeasible);
  input.devices = 4;
  input.dp = 3;
  CHECK(profile_batch(input).error().code == Errc::invalid_argument);
  input.dp = 4;
  CHECK(profile_batch(input).error().code == Errc::infeasible);
  input.dp = 1;
  input.p_error = 1e-15;  // 3e15 trials.
  CHECK(profile_batch(input).error().where == "p_error");
  input.samples.push_back({1});
  CHECK(profile_batch(input).error().code == Errc::invalid_argument);
}

}  // namespace
}  // namespace troupe::scheduler
