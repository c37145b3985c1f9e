#include "scheduler/recovery/instantiate.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "scheduler/iteration/distribute.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

std::vector<std::int64_t> sizes_from(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> sizes;
  for (auto size = first; size <= last; ++size) sizes.push_back(size);
  return sizes;
}

// Time per microbatch falls with the size, less than in proportion.
InstantiateRequest request(std::int64_t first, std::int64_t last, std::int64_t nodes,
                           std::int64_t batch) {
  InstantiateRequest made;
  for (const auto size : sizes_from(first, last))
    made.templates.push_back({size, 100 / std::pow(static_cast<double>(size), 0.9)});
  made.node_count = nodes;
  made.global_batch = batch;
  return made;
}

void check_sums(const InstantiateRequest& input, const Instantiation& made) {
  std::int64_t nodes = 0, microbatches = 0;
  double slowest = 0;
  for (const auto& pipeline : made.pipelines) {
    nodes += pipeline.node_count;
    microbatches += pipeline.microbatches;
    REQUIRE(pipeline.microbatches >= 1);
    for (const auto& entry : input.templates)
      if (entry.node_count == pipeline.node_count)
        slowest =
            std::max(slowest, entry.microbatch_ms * static_cast<double>(pipeline.microbatches));
  }
  REQUIRE(nodes == input.node_count);
  REQUIRE(microbatches == input.global_batch / input.microbatch_size);
  REQUIRE(static_cast<std::int64_t>(made.pipelines.size()) > input.fault_tolerance);
  REQUIRE(made.iteration_ms == Approx(slowest));
  REQUIRE(made.lower_bound_ms <= made.iteration_ms * (1 + 1e-12));
}

TEST_CASE("combinations are counted as the published examples count them", "[scheduler]") {
  // {2,3,4} on 7 nodes: 3+4 and 2+2+3.
  CHECK(count_combinations({2, 3, 4}, 7, 1) == "2");
  CHECK(count_combinations(sizes_from(2, 7), 13, 1) == "17");
  const std::vector<std::string> pairs{"1", "1", "2", "1", "2", "2", "2",
                                       "2", "3", "2", "3", "3", "3"};
  for (std::int64_t nodes = 4; nodes <= 16; ++nodes)
    CHECK(count_combinations({2, 3}, nodes, 1) == pairs[static_cast<std::size_t>(nodes - 4)]);
  // With at least three pipelines only 2+2+3 is left of the first.
  CHECK(count_combinations({2, 3, 4}, 7, 3) == "1");
  CHECK(count_combinations({2, 4}, 7, 1) == "0");
}

TEST_CASE("numbers of combinations may have any length", "[scheduler]") {
  // 6.6e19 does not fit into 64 bits.
  const auto many = count_combinations(sizes_from(2, 60), 500, 1);
  CHECK(many.size() == 20);
  CHECK(std::stod(many) == Approx(6.6e19).epsilon(0.01));
  // Partitions of 1000: a known number of 32 digits.
  CHECK(count_combinations(sizes_from(1, 1000), 1000, 1) == "24061467864032622473692149727991");
}

TEST_CASE("one template is used as often as it fits", "[scheduler]") {
  InstantiateRequest input{{{1, 7.0}}, 4, 0, 512, 1};
  const auto made = instantiate(input);
  REQUIRE(made.ok());
  CHECK(made.value().pipelines == std::vector<PipelineShare>(4, {1, 128}));
  CHECK(made.value().iteration_ms == 896);
  CHECK(made.value().combinations == "1");
  CHECK(made.value().proven);
}

TEST_CASE("templates 2 to 7 on 13 nodes use all nodes and all microbatches", "[scheduler]") {
  const auto input = request(2, 7, 13, 1024);
  const auto made = instantiate(input);
  REQUIRE(made.ok());
  CHECK(made.value().combinations == "17");
  CHECK(made.value().proven);
  check_sums(input, made.value());
}

TEST_CASE("what cannot be instantiated names the nearest choice", "[scheduler][errors]") {
  InstantiateRequest input{{{2, 1.0}, {4, 1.0}}, 7, 0, 8, 1};
  auto result = instantiate(input);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code == Errc::infeasible);
  CHECK_THAT(result.error().fix, ContainsSubstring("6 nodes"));
  input.node_count = 6;
  input.fault_tolerance = 3;  // Three pipelines of two nodes at most.
  CHECK_THAT(instantiate(input).error().message, ContainsSubstring("at least 4 pipelines"));
  input.fault_tolerance = 6;
  CHECK_THAT(instantiate(input).error().fix, ContainsSubstring("fault_tolerance = 5"));
  input = {{{2, 1.0}, {4, 1.0}}, 8, 2, 10, 4};  // Three pipelines at least: 3 x 4 = 12.
  result = instantiate(input);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().where == "global_batch");
  CHECK_THAT(result.error().fix, ContainsSubstring("12"));
}

TEST_CASE("bad templates are refused", "[scheduler][errors]") {
  CHECK(instantiate({{}, 4, 0, 8, 1}).error().where == "templates");
  CHECK(instantiate({{{2, 1.0}, {2, 2.0}}, 4, 0, 8, 1}).error().where == "templates[1]");
  CHECK(instantiate({{{2, std::nan("")}}, 4, 0, 8, 1}).error().where == "templates[0]");
  CHECK(instantiate({{{0, 1.0}}, 4, 0, 8, 1}).error().where == "templates[0]");
  CHECK(instantiate({{{1, 1.0}}, 0, 0, 8, 1}).error().where == "nodes");
  CHECK(instantiate({{{1, 1.0}}, 4, -1, 8, 1}).error().where == "fault_tolerance");
  CHECK(instantiate({{{1, 1.0}}, 1'000'000'000, 0, 8, 1}).error().code == Errc::invalid_argument);
}

TEST_CASE("instantiate finds the best of all combinations", "[scheduler][property]") {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    InstantiateRequest input;
    const auto first = static_cast<std::int64_t>(1 + random() % 3);
    const auto last = static_cast<std::int64_t>(first + random() % 4);
    for (auto size = first; size <= last; ++size)
      input.templates.push_back(
          {size, seed % 2 ? static_cast<double>(1 + random() % 9)
                          : (1 + static_cast<double>(random()) / 4e9) / static_cast<double>(size)});
    input.node_count = static_cast<std::int64_t>(first + random() % 12);
    input.fault_tolerance = random() % 3;
    input.global_batch = static_cast<std::int64_t>(1 + random() % 30);
    double best = std::numeric_limits<double>::infinity();
    std::int64_t count = 0;
    std::vector<double> ms;
    std::function<void(std::size_t, std::int64_t)> pick = [&](std::size_t i, std::int64_t left) {
      if (left == 0 && static_cast<std::int64_t>(ms.size()) > input.fault_tolerance) {
        ++count;
        const auto split = distribute(ms, input.global_batch, 1);
        if (!split.ok()) return;
        double slowest = 0;
        for (std::size_t k = 0; k < ms.size(); ++k)
          slowest = std::max(slowest, ms[k] * static_cast<double>(split.value()[k]));
        best = std::min(best, slowest);
      }
      for (; i < input.templates.size(); ++i) {
        if (input.templates[i].node_count > left) continue;
        ms.push_back(input.templates[i].microbatch_ms);
        pick(i, left - input.templates[i].node_count);
        ms.pop_back();
      }
    };
    pick(0, input.node_count);
    CAPTURE(seed, count, best);
    const auto made = instantiate(input);
    REQUIRE(made.ok() == std::isfinite(best));
    if (!made.ok()) continue;
    check_sums(input, made.value());
    REQUIRE(made.value().combinations == std::to_string(count));
    REQUIRE(made.value().proven);
    REQUIRE(made.value().iteration_ms == Approx(best));
  }
}

TEST_CASE("five hundred nodes are planned without listing combinations", "[scheduler]") {
  const auto input = request(2, 60, 500, 4096);
  const auto made = instantiate(input);
  REQUIRE(made.ok());
  check_sums(input, made.value());
  CHECK(std::stod(made.value().combinations) == Approx(6.6e19).epsilon(0.01));
  CHECK(made.value().proven);
}

}  // namespace
}  // namespace troupe::scheduler
