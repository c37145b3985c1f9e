#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "app/solve/problem.hpp"

namespace troupe::app {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

Json solved(const std::string& problem, const std::string& input) {
  auto output = solve(problem, input);
  INFO((output.ok() ? "" : to_string(output.error())));
  REQUIRE(output.ok());
  CHECK(output.value().contains("compute_ms"));
  return output.value();
}

Error refused(const std::string& problem, const std::string& input) {
  const auto output = solve(problem, input);
  REQUIRE_FALSE(output.ok());
  CHECK(exit_code(output.error()) == 2);
  return output.error();
}

TEST_CASE("solve partition answers cuts and maximum", "[solve]") {
  const Json output = solved("partition", R"({"costs": [2,4,6,8,10,12], "stages": 3})");
  CHECK(output["cuts"] == Json{0, 3, 5, 6});
  CHECK(output["max"] == 18);
}

TEST_CASE("solve templates answers one template per size", "[solve]") {
  const Json output = solved("templates", R"({
    "layers": [{"forward_ms": 4, "backward_ms": 4, "memory_bytes": 1, "in_node_sync_ms": {"8": 2}},
               {"forward_ms": 4, "backward_ms": 4, "memory_bytes": 1, "in_node_sync_ms": {"8": 2}}],
    "nodes": 2, "gpus_per_node": 1, "fault_tolerance": 0, "device_memory_bytes": 8e9})");
  CHECK(output["min_nodes"] == 1);
  REQUIRE(output["templates"].size() == 2);
  // Two nodes: stages of 8, Nb = 8: 16 + 7 x 8 = 72.
  CHECK(output["templates"][1]["iteration_ms"] == Approx(72));
  CHECK(output["templates"][1]["microbatch_ms"] == Approx(9));
  CHECK(output["templates"][1]["stages"][1] == Json{{"layers", {1, 2}}, {"node", 1}, {"gpus", 1}});
}

TEST_CASE("solve instantiate takes the templates as `templates` prints them", "[solve]") {
  const Json output = solved("instantiate", R"({
    "templates": [{"nodes": 2, "microbatch_ms": 10, "iteration_ms": 80},
                  {"nodes": 3, "microbatch_ms": 7}, {"nodes": 4, "microbatch_ms": 5}],
    "nodes": 7, "fault_tolerance": 0, "global_batch": 1024, "microbatch_size": 1})");
  CHECK(output["combinations"] == "2");
  CHECK(output["optimal"] == true);
  std::int64_t nodes = 0, microbatches = 0;
  for (const auto& pipeline : output["pipelines"]) {
    nodes += pipeline["nodes"].get<std::int64_t>();
    microbatches += pipeline["microbatches"].get<std::int64_t>();
  }
  CHECK(nodes == 7);
  CHECK(microbatches == 1024);
}

TEST_CASE("solve distribute refuses with the nearest batch", "[solve]") {
  CHECK(solved("distribute", R"({"microbatch_ms": [10, 20], "global_batch": 12,
                                 "microbatch_size": 2})")["microbatches"] == Json{4, 2});
  CHECK_THAT(refused("distribute", R"({"microbatch_ms": [1, 1], "global_batch": 13,
                                       "microbatch_size": 4})")
                 .fix,
             ContainsSubstring("12"));
}

TEST_CASE("solve reconfigure follows the published rules", "[solve]") {
  const Json output = solved("reconfigure", R"({
    "pipelines": [[0,1],[2,3,4],[5,6,7,8],[9,10,11,12,13]], "minimum": 2, "ranks_per_node": 1,
    "fault_tolerance": 0, "lost": [1,3,4], "joined": []})");
  CHECK(output["pipelines"] == Json::parse("[[0,13],[2,12],[9,10,11],[5,6,7,8]]"));
}

TEST_CASE("solve copy-plan names sender and receiver of each layer", "[solve]") {
  const Json output = solved("copy-plan", R"({"bytes": {"a": 6, "b": 4, "c": 4},
    "holders": {"a": [0], "b": [0, 1], "c": [0, 1]}, "needs": {"a": [2], "b": [2], "c": [2]}})");
  CHECK(output["max_sent_bytes"] == 8);
  CHECK(output["lower_bound_bytes"] == 8);
  CHECK(output["copies"][0] == Json{{"layer", "a"}, {"from", 0}, {"to", 2}});
  CHECK_THAT(refused("copy-plan", R"({"bytes": {"a": 6, "b": 1}, "holders": {},
                                      "needs": {"a": [1], "b": [2]}})")
                 .message,
             ContainsSubstring("'a', 'b'"));
  CHECK_THAT(refused("copy-plan", R"({"bytes": {}, "holders": {"x": [1]}, "needs": {}})").where,
             ContainsSubstring("holders.x"));
}

TEST_CASE("solve module-partition is frozen-aware", "[solve]") {
  const std::string layers = R"([{"forward_ms": 1, "input_grad_ms": 1, "weight_grad_ms": 1},
                                 {"forward_ms": 1, "input_grad_ms": 1, "weight_grad_ms": 1}])";
  const Json output = solved("module-partition", R"({"modules": [
      {"name": "vision", "freeze": true, "next": ["llm"], "layers": )" +
                                                     layers + R"(},
      {"name": "llm", "freeze": false, "next": [], "layers": )" +
                                                     layers + R"(}],
    "devices": 2, "microbatches": 3})");
  // vision 2; llm 1 + 1 (no input gradient) and 1 + 2: 5. Path 7, two more microbatches of 5.
  REQUIRE(output["stages"].size() == 2);
  CHECK(output["stages"][0]["backward_ms"] == 0);
  CHECK(output["stages"][1]["backward_ms"] == 3);
  CHECK(output["stages"][1]["runs"] == Json::parse(R"([{"module": "llm", "layers": [0, 2]}])"));
  CHECK(output["step_ms"] == Approx(17));
}

TEST_CASE("solve profile-batch reports batch, trials and devices per module", "[solve]") {
  const Json output = solved("profile-batch", R"({
    "samples": [{"vision": 1, "llm": 3}, {"llm": 3, "vision": 1}], "devices": 8, "dp": 2,
    "alpha": 0.05, "p_error": 0.05, "first_size": 4, "seed": 1})");
  CHECK(output["b_min"] == 4);
  CHECK(output["trials"] == 59);
  CHECK(output["allocation"] == Json{{"vision", 1}, {"llm", 3}});
  CHECK_THAT(refused("profile-batch", R"({"samples": [], "devices": 8})").message,
             ContainsSubstring("no samples"));
}

TEST_CASE("planning problems name the field that is wrong", "[solve][errors]") {
  CHECK_THAT(refused("partition", R"({"costs": [1, -1], "stages": 1})").where,
             ContainsSubstring("costs[1]"));
  CHECK_THAT(refused("partition", R"({"costs": [1, null], "stages": 1})").message,
             ContainsSubstring("expected a number"));
  CHECK_THAT(refused("partition", R"({"cost": [1], "stages": 1})").fix, ContainsSubstring("costs"));
  CHECK_THAT(refused("partition", R"({"costs": [1], "stages": 2})").fix,
             ContainsSubstring("nearest choice"));
  CHECK_THAT(refused("templates", R"({"layers": [{"forward_ms": 1, "backward_ms": 1,
        "in_node_sync_ms": {"two": 1}}], "nodes": 1, "gpus_per_node": 2,
        "device_memory_bytes": 1})")
                 .message,
             ContainsSubstring("'two'"));
  CHECK_THAT(refused("reconfigure", R"({"pipelines": [[0, "x"]], "minimum": 1})").where,
             ContainsSubstring("pipelines[0]"));
}

}  // namespace
}  // namespace troupe::app
