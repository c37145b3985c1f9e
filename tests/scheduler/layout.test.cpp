#include "scheduler/layout.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "scheduler/layout_options.hpp"
#include "scheduler/profile_batch.hpp"
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

/// Everything the search may choose, costed afresh.
double brute_force(const LayoutInput& input) {
  const auto facts = layout_facts(input).value();
  double best = std::numeric_limits<double>::infinity();
  const auto visit_module = [&](std::size_t m, auto&& visit) {
    const auto& module = input.modules[m];
    for (const auto tp : module.valid_tp)
      for (const auto cp : module.valid_cp)
        for (int pp = 1; pp <= module.layers; ++pp)
          for (int dp = 1; dp <= input.devices; ++dp)
            if (tp * cp <= input.devices_per_node) visit(ModuleLayout{tp, cp, pp, dp, {}, 0});
  };
  const bool dflop = input.objective == LayoutObjective::dflop;
  const bool shared = input.placement == Placement::shared;
  for (const auto size : input.microbatch_sizes)
    visit_module(0, [&](const ModuleLayout& vision) {
      visit_module(1, [&](const ModuleLayout& llm) {
        const ModuleLayout layouts[] = {vision, llm};
        const auto batch = input.global_batch;
        if (shared ? std::max(vision.devices(), llm.devices()) > input.devices
                   : vision.devices() + llm.devices() > input.devices)
          return;
        if (batch % (size * llm.dp) != 0) return;
        const auto count = batch / (size * llm.dp);
        if (!shared && !dflop && vision.dp != llm.dp) return;
        if (shared ? batch % (size * vision.dp) != 0 : batch % (count * vision.dp) != 0) return;
        double memory = 0, path = 0, sum = 0;
        const std::size_t draws = facts.time_ms[0].size();
        std::vector<double> slowest(draws);
        for (std::size_t m = 0; m < 2; ++m) {
          const auto& l = layouts[m];
          const auto own = shared ? batch / (size * l.dp) : count;
          const auto samples = batch / (own * l.dp);
          const auto& spec = input.modules[m];
          const double share = std::ceil(1.0 * spec.layers / l.pp) / spec.layers;
          const auto found = spec.speedup.find({l.tp, l.cp});
          const double speedup = found == spec.speedup.end() ? l.tp * l.cp : found->second;
          const auto depth = m == 0 && !shared ? vision.pp + llm.pp : l.pp;
          const auto in_flight = shared && m == 0 ? own : std::min<std::int64_t>(own, depth);
          double activations = 0;
          for (const auto& sums : facts.activation_bytes[m])
            activations = std::max(activations, sums[static_cast<std::size_t>(samples)]);
          const double bytes = spec.state_bytes / l.tp * share +
                               static_cast<double>(in_flight) * activations / (l.tp * l.cp) * share;
          memory = shared ? memory + bytes : std::max(memory, bytes);
          double mean = 0;
          for (std::size_t d = 0; d < draws; ++d) {
            const double ms = facts.time_of(static_cast<int>(m), d, samples) / speedup;
            mean += ms / static_cast<double>(draws);
            slowest[d] = std::max(slowest[d], ms * share);
          }
          path += mean;
          const auto k = static_cast<double>(own);
          sum += dflop ? (k + l.pp - 1) * mean * share : mean + (k - 1) * mean * share;
        }
        if (memory > input.device_memory_bytes) return;
        double mean_slowest = 0;
        for (const double ms : slowest) mean_slowest += ms / static_cast<double>(draws);
        const auto k = static_cast<double>(count);
        const double ms = shared  ? sum
                          : dflop ? (k + vision.pp + llm.pp - 1) * mean_slowest
                                  : path + (k - 1) * mean_slowest;
        best = std::min(best, ms);
      });
    });
  return best;
}

TEST_CASE("the search finds what brute force finds", "[scheduler][property]") {
  int feasible = 0;
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    std::mt19937 random(seed);
    LayoutInput input = two_modules();
    input.devices = draw(random, 2, 9);
    input.devices_per_node = draw(random, 1, 4);
    input.global_batch = draw(random, 1, 24);
    input.microbatch_sizes = {1, 2, 3};
    input.seed = seed;
    input.objective = draw(random, 0, 1) == 1 ? LayoutObjective::dflop : LayoutObjective::entrain;
    input.placement = draw(random, 0, 2) == 0 ? Placement::shared : Placement::disjoint;
    input.device_memory_bytes = draw(random, 200, 1500);
    input.samples.clear();
    for (int s = 0; s < 10; ++s) {
      std::vector<ModuleSample> sample;
      for (int m = 0; m < 2; ++m)
        sample.push_back(
            {draw(random, 0, 9) + 0.5, draw(random, 0, 18) + 0.5, draw(random, 1, 20) * 1.0, 0});
      input.samples.push_back(sample);
    }
    for (auto& module : input.modules) {
      module.layers = draw(random, 1, 5);
      module.freeze = draw(random, 0, 2) == 0;
      if (draw(random, 0, 1) == 1) module.valid_tp = {1, 2};
      if (draw(random, 0, 1) == 1) module.valid_cp = {1, 2};
      module.speedup = {{{2, 1}, 1.7}};
    }
    const double expected = brute_force(input);
    const auto choice = search_layout(input);
    INFO("seed " << seed << " expected " << expected);
    REQUIRE(choice.ok() == std::isfinite(expected));
    if (!choice.ok()) {
      CHECK(choice.error().code == Errc::infeasible);
      CHECK_FALSE(choice.error().fix.empty());
      continue;
    }
    ++feasible;
    CHECK(choice.value().expected_step_ms == Approx(expected));
  }
  CHECK(feasible > 100);
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
