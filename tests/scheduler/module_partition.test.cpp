#include "scheduler/layout/module_partition.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

std::vector<PlannedLayer> equal(int count, PlannedLayer layer) {
  return std::vector<PlannedLayer>(static_cast<std::size_t>(count), layer);
}

// vision (4 layers) -> projector (1) -> llm (4); every layer 1, 1, 1 ms.
std::vector<PlannedModule> chain(bool freeze_vision, bool freeze_llm) {
  return {{"vision", freeze_vision, {"projector"}, {}, equal(4, {1, 1, 1})},
          {"projector", false, {"llm"}, "llm", equal(1, {1, 1, 1})},
          {"llm", freeze_llm, {}, {}, equal(4, {1, 1, 1})}};
}

ModulePartition made(const std::vector<PlannedModule>& modules, int devices, int microbatches) {
  auto result = partition_modules(modules, devices, microbatches);
  REQUIRE(result.ok());
  return std::move(result).value();
}

TEST_CASE("frozen modules cost what is left of their backward", "[scheduler]") {
  const auto costs = frozen_aware_costs(chain(true, true));
  // Nothing trainable before or in vision; the projector learns but nothing before it does; the
  // llm passes gradients to the projector.
  CHECK(costs[0][0].input_grad_ms + costs[0][0].weight_grad_ms == 0);
  CHECK(costs[1][0].input_grad_ms == 0);
  CHECK(costs[1][0].weight_grad_ms == 1);
  CHECK(costs[2][0].input_grad_ms == 1);
  CHECK(costs[2][0].weight_grad_ms == 0);
  // All trainable: only the very first layer needs no input gradient.
  const auto all = frozen_aware_costs(chain(false, false));
  CHECK(all[0][0].input_grad_ms == 0);
  CHECK(all[0][1].input_grad_ms == 1);
}

TEST_CASE("a frozen encoder gets fewer devices than a trainable one", "[scheduler]") {
  // Frozen: vision 4 x 1, projector 2 (forward, weight), llm 4 x 3 on three devices. The projector
  // rides: [4 vision][p + 1 llm.. ]: 4 | 2+3 | ... with two llm stages of (2+3+3, 3+3) = 8.
  const auto frozen = made(chain(true, false), 3, 4);
  CHECK(frozen.max_ms == Approx(8));
  REQUIRE(frozen.stages.size() == 3);
  CHECK(frozen.stages[0].runs == std::vector<ModuleRun>{{0, {0, 4}}});
  CHECK(frozen.stages[0].backward_ms == 0);
  CHECK(frozen.stages[1].runs == std::vector<ModuleRun>{{1, {0, 1}}, {2, {0, 2}}});
  // Path 4 + 8 + 6 and three more microbatches of the slowest.
  CHECK(frozen.step_ms == Approx(18 + 3 * 8));
  // Trainable: vision 2 + 3 + 3 + 3 = 11 in one stage, projector and llm 3 + 12 in two: 9 and 6.
  CHECK(made(chain(false, false), 3, 4).max_ms == Approx(11));
}

TEST_CASE("a small module gets its own stage where that is faster", "[scheduler]") {
  auto modules = chain(true, true);
  modules[1].layers = equal(1, {5, 0, 5});
  // vision 4, projector 10, llm 4 x 2 = 8. With three devices the projector stands alone: 10.
  CHECK(made(modules, 3, 1).max_ms == Approx(10));
  // With two it must share: 18 with the llm.
  CHECK(made(modules, 2, 1).max_ms == Approx(18));
  // Attached to its encoder instead: 14.
  modules[1].attach = "vision";
  const auto shared = made(modules, 2, 1);
  CHECK(shared.max_ms == Approx(14));
  CHECK(shared.stages[0].runs == std::vector<ModuleRun>{{0, {0, 4}}, {1, {0, 1}}});
}

TEST_CASE("two encoders run side by side into one llm", "[scheduler]") {
  const std::vector<PlannedModule> modules{{"vision", true, {"llm"}, {}, equal(3, {2, 1, 1})},
                                           {"audio", true, {"llm"}, {}, equal(2, {1, 1, 1})},
                                           {"llm", false, {}, {}, equal(2, {2, 2, 2})}};
  const auto result = made(modules, 4, 3);
  // vision 6, audio 2, llm 4 (first layer without input gradient) and 6: maximum 6.
  CHECK(result.max_ms == Approx(6));
  // The longest path is vision and llm: 6 + 4 + 6, then two more microbatches.
  CHECK(result.step_ms == Approx(16 + 2 * 6));
}

TEST_CASE("equal maxima go to the shorter path", "[scheduler]") {
  // The llm's 10 decides. Audio may ride (path of vision 5 + 10) or stand alone (5 + 8).
  std::vector<PlannedModule> modules{{"vision", true, {"llm"}, {}, equal(1, {5, 0, 0})},
                                     {"audio", true, {"llm"}, "llm", equal(1, {2, 0, 0})},
                                     {"llm", true, {}, {}, {{8, 0, 0}, {10, 0, 0}}}};
  const auto four = made(modules, 4, 1);
  CHECK(four.max_ms == Approx(10));
  CHECK(four.step_ms == Approx(5 + 8 + 10));
  const auto three = made(modules, 3, 1);
  CHECK(three.max_ms == Approx(10));
  CHECK(three.step_ms == Approx(5 + 10 + 10));
}

TEST_CASE("what cannot be partitioned names the rule", "[scheduler][errors]") {
  auto modules = chain(false, false);
  auto result = partition_modules(modules, 1, 1);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code == Errc::infeasible);
  CHECK_THAT(result.error().fix, ContainsSubstring("2 devices"));
  modules[0].next = {"projectr"};
  CHECK_THAT(partition_modules(modules, 3, 1).error().fix, ContainsSubstring("`projector`"));
  modules = chain(false, false);
  modules[2].next = {"vision"};
  CHECK_THAT(partition_modules(modules, 3, 1).error().message, ContainsSubstring("cycle"));
  modules = chain(false, false);
  modules[0].attach = "llm";
  CHECK_THAT(partition_modules(modules, 3, 1).error().message, ContainsSubstring("no neighbours"));
  modules = chain(false, false);
  modules[2].attach = "projector";
  CHECK_THAT(partition_modules(modules, 3, 1).error().message, ContainsSubstring("lead back"));
  modules = chain(false, false);
  modules[1].layers.clear();
  CHECK_THAT(partition_modules(modules, 3, 1).error().message, ContainsSubstring("no layers"));
  modules = chain(false, false);
  modules[1].name = "llm";
  CHECK_FALSE(partition_modules(modules, 3, 1).ok());
  modules = chain(false, false);
  modules[2].layers[1].weight_grad_ms = std::nan("");
  CHECK(partition_modules(modules, 3, 1).error().where == "modules[2].layers[1]");
  CHECK(partition_modules(chain(false, false), 3, 0).error().where == "microbatches");
  CHECK_FALSE(partition_modules({}, 3, 1).ok());
  modules = chain(false, false);
  modules[1].layers = equal(100'000, {1, 1, 1});
  CHECK_THAT(partition_modules(modules, 3, 1).error().fix, ContainsSubstring("small modules"));
}

TEST_CASE("a million layers are partitioned", "[scheduler]") {
  auto modules = chain(true, false);
  modules[2].layers = equal(1'000'000, {1, 1, 1});
  const auto result = made(modules, 101, 1);
  CHECK(result.max_ms == Approx(30'000).epsilon(1e-3));
}

// Independent oracle: joins or cuts at every place between two layers that may share a stage, and
// measures the stages of each choice. Trees only (each module has at most one `next`).
struct Brute {
  const std::vector<PlannedModule>& modules;
  std::vector<std::vector<PlannedLayer>> costs;
  std::vector<std::pair<int, int>> joints;  // Layer pairs that may share a stage.
  std::vector<int> first;                   // First global layer of each module.
  std::vector<std::pair<int, int>> edges;   // All layer pairs, joinable or not.
  std::vector<double> ms;

  explicit Brute(const std::vector<PlannedModule>& all)
      : modules(all), costs(frozen_aware_costs(all)) {
    std::map<std::string, int> index;
    for (std::size_t m = 0; m < all.size(); ++m) {
      index[all[m].name] = static_cast<int>(m);
      first.push_back(static_cast<int>(ms.size()));
      for (const auto& c : costs[m])
        ms.push_back(c.forward_ms + c.input_grad_ms + c.weight_grad_ms);
    }
    for (std::size_t m = 0; m < all.size(); ++m) {
      const int last = first[m] + static_cast<int>(all[m].layers.size()) - 1;
      for (int layer = first[m]; layer < last; ++layer) joint(layer, layer + 1, true);
      for (const auto& next : all[m].next) {
        const int to = index[next];
        joint(last, first[static_cast<std::size_t>(to)],
              all[m].attach == next || all[static_cast<std::size_t>(to)].attach == all[m].name);
      }
    }
  }
  void joint(int a, int b, bool may) {
    edges.push_back({a, b});
    if (may) joints.push_back({a, b});
  }

  std::pair<double, double> best(int devices, double repeats) {
    std::pair<double, double> best{std::numeric_limits<double>::infinity(), 0};
    for (unsigned mask = 0; mask < (1u << joints.size()); ++mask) {
      std::vector<int> root(ms.size());
      for (std::size_t i = 0; i < ms.size(); ++i) root[i] = static_cast<int>(i);
      const std::function<int(int)> find = [&](int x) {
        return root[static_cast<std::size_t>(x)] == x ? x : find(root[static_cast<std::size_t>(x)]);
      };
      for (std::size_t j = 0; j < joints.size(); ++j)
        if (mask & (1u << j))
          root[static_cast<std::size_t>(find(joints[j].first))] = find(joints[j].second);
      std::map<int, double> stage;
      for (std::size_t i = 0; i < ms.size(); ++i) stage[find(static_cast<int>(i))] += ms[i];
      if (static_cast<int>(stage.size()) > devices) continue;
      double slowest = 0, longest = 0;
      for (const auto& entry : stage) slowest = std::max(slowest, entry.second);
      const std::function<double(int)> path = [&](int s) {
        double rest = 0;
        for (const auto& [a, b] : edges)
          if (find(a) == s && find(b) != s) rest = std::max(rest, path(find(b)));
        return stage[s] + rest;
      };
      for (const auto& entry : stage) longest = std::max(longest, path(entry.first));
      const double step = longest + repeats * slowest;
      if (slowest < best.first - 1e-9 || (slowest < best.first + 1e-9 && step < best.second))
        best = {slowest, step};
    }
    return best;
  }
};

TEST_CASE("module partitions are optimal on random trees", "[scheduler][property]") {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const auto layers = [&](unsigned most) {
      std::vector<PlannedLayer> list;
      for (unsigned i = 0, count = 1 + random() % most; i < count; ++i)
        list.push_back({static_cast<double>(random() % 6), static_cast<double>(random() % 4),
                        static_cast<double>(random() % 4)});
      return list;
    };
    const auto freeze = [&] { return random() % 2 == 0; };
    std::vector<PlannedModule> modules;
    const unsigned branches = 1 + random() % 2;
    for (unsigned b = 0; b < branches; ++b) {
      const auto suffix = std::to_string(b);
      modules.push_back({"e" + suffix, freeze(), {"p" + suffix}, {}, layers(3)});
      if (random() % 4 == 0) modules.back().attach = "p" + suffix;
      modules.push_back({"p" + suffix, freeze(), {"llm"}, {}, layers(2)});
      // An encoder that rides on its projector must not be ridden on by it.
      if (random() % 3 && !modules[modules.size() - 2].attach)
        modules.back().attach = random() % 2 ? "llm" : "e" + suffix;
      else if (random() % 2)
        modules.back().attach = "llm";
    }
    modules.push_back({"llm", freeze(), {}, {}, layers(3)});
    const int devices = 1 + static_cast<int>(random() % 6);
    const auto alone = std::count_if(modules.begin(), modules.end(),
                                     [](const auto& module) { return !module.attach; });
    CAPTURE(seed, devices);
    const auto result = partition_modules(modules, devices, 3);
    REQUIRE(result.ok() == (devices >= alone));
    if (!result.ok()) continue;
    const auto [slowest, step] = Brute(modules).best(devices, 2);
    REQUIRE(result.value().max_ms == Approx(slowest));
    REQUIRE(result.value().step_ms == Approx(step));
    REQUIRE(static_cast<int>(result.value().stages.size()) <= devices);
  }
}

}  // namespace
}  // namespace troupe::scheduler
