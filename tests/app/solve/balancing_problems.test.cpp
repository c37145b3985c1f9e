// The balancing problems as users and scripts meet them: JSON text in, JSON out.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "app/solve/problem.hpp"
#include "balancer/loads/distributions.hpp"
#include "tests/sanitized.hpp"

namespace troupe::app {
namespace {

using Catch::Matchers::ContainsSubstring;

Json answer(const std::string& problem, const std::string& input) {
  auto output = solve(problem, input);
  if (!output.ok()) FAIL(to_string(output.error()));
  return output.value();
}

Error refusal(const std::string& problem, const std::string& input) {
  const auto output = solve(problem, input);
  REQUIRE_FALSE(output.ok());
  return output.error();
}

TEST_CASE("replicas of equal speed share the LLM work", "[solve]") {
  // By encoder work: sample 0 -> replica 0, 1 -> replica 1 (0 < 6), 2 -> replica 1 (2 < 6).
  const auto output = answer("replicas", R"({"samples": [
      {"encoder_ms": 9, "llm_ms": 6}, {"encoder_ms": 5, "llm_ms": 2},
      {"encoder_ms": 1, "llm_ms": 3}], "speeds": [1, 1]})");
  CHECK(output["replicas"] == Json::parse("[[0],[1,2]]"));
  CHECK(output["compute_ms"].is_number());
}

TEST_CASE("hierarchical defers within pairs", "[solve]") {
  // Four equal encoder workloads, K = 2; LLM 8, 4, 2, 2. Coarse: 0, 1; fine: 2 -> the microbatch
  // with less LLM work (1's), 3 -> 0's: loads 10 and 6; moving sample 3 evens them.
  const auto output = answer("hierarchical", R"({"samples": [
      {"encoder_ms": 1, "llm_ms": 8}, {"encoder_ms": 1, "llm_ms": 4},
      {"encoder_ms": 1, "llm_ms": 2}, {"encoder_ms": 1, "llm_ms": 2}], "microbatches": 2})");
  CHECK(output["effective_microbatches"] == 2);
  CHECK(output["encoder_microbatches"] == Json::parse("[[0,3],[1,2]]"));
  CHECK(output["llm_microbatches"] == Json::parse("[[0],[1,2,3]]"));
  CHECK(output["parts"] == Json::parse("[0,0,0,1]"));  // Microbatch 0 feeds both of the llm.
  CHECK(output["deferred"] == Json::parse("[3]"));
  CHECK(output["pairs"] == Json::parse("[[0,1]]"));
}

TEST_CASE("hierarchical pairs by the larger load of both sides", "[solve]") {
  // Encoder work 64, the largest 16: K = 4. Coarse (LLM 5, 5, 4): sample 4 -> 0, 3 -> 1, 0 -> 2;
  // fine by encoder: 6 -> 3, 1 (7) -> 2 (8 < 10), 5 (6) -> 1 (10 < 15), 2 (1) -> 2. LLM loads then:
  // 10 = 5 + 3 + 2 and 9 = 5 + 4 give to 4 and 1. Sample 1 evens 10 and 4 to 7 and 7, sample 5
  // evens 9 and 1 to 5 and 5; the other way round one receiver would end at 4 + 4 = 8.
  const auto output = answer("hierarchical", R"({"samples": [
      {"encoder_ms": 8, "llm_ms": 5}, {"encoder_ms": 7, "llm_ms": 3},
      {"encoder_ms": 1, "llm_ms": 2}, {"encoder_ms": 10, "llm_ms": 5},
      {"encoder_ms": 16, "llm_ms": 4}, {"encoder_ms": 6, "llm_ms": 4},
      {"encoder_ms": 16, "llm_ms": 1}], "microbatches": 4})");
  CHECK(output["encoder_microbatches"] == Json::parse("[[0,1,2],[4],[3,5],[6]]"));
  CHECK(output["llm_microbatches"] == Json::parse("[[0,2],[1,4],[3],[5,6]]"));
  CHECK(output["deferred"] == Json::parse("[1,5]"));
}

TEST_CASE("hierarchical without deferral has equal sides", "[solve]") {
  const auto output = answer("hierarchical", R"({"samples": [
      {"encoder_ms": 1, "llm_ms": 8}, {"encoder_ms": 1, "llm_ms": 4}],
      "microbatches": 2, "deferral": false})");
  CHECK(output["encoder_microbatches"] == output["llm_microbatches"]);
}

TEST_CASE("a cap no plan keeps is answered with exit code 2", "[solve][errors]") {
  const auto error =
      refusal("hierarchical",
              R"({"samples": [{"encoder_ms": 1, "llm_ms": 8}], "microbatches": 2, "llm_cap": 5})");
  CHECK(exit_code(error) == 2);
  CHECK_THAT(error.message, ContainsSubstring("above the cap"));
}

TEST_CASE("ilp-partition meets its bound by every method", "[solve]") {
  const auto method = GENERATE("auto", "ilp", "lpt", "search");
  const auto output = answer("ilp-partition", std::string(R"({"samples": [
      {"encoder_ms": 3, "llm_ms": 1}, {"encoder_ms": 1, "llm_ms": 3},
      {"encoder_ms": 3, "llm_ms": 1}, {"encoder_ms": 1, "llm_ms": 3}],
      "buckets": 2, "time_limit_ms": 2000, "method": ")") +
                                                  method + "\"}");
  CHECK(output["max_ms"] == 4.0);
  CHECK(output["lower_bound_ms"] == 4.0);
  CHECK(output["buckets"].size() == 2);
}

TEST_CASE("post-balance names where each item was", "[solve]") {
  const auto output =
      answer("post-balance", R"({"lengths": [[5, 4], []], "algorithm": "no-padding"})");
  CHECK(output["batches"] == Json::parse("[[[0,0]],[[0,1]]]"));
  CHECK(output["loads"] == Json::parse("[5.0,4.0]"));
}

TEST_CASE("post-balance keeps to the tolerance and to the padded bound", "[solve]") {
  // Quadratic: 10 | 6, 5 have sums 10 and 11; their difference is not below 1, so 4 joins 10.
  const auto quadratic = answer("post-balance", R"({"lengths": [[10, 6, 5, 4], []],
      "algorithm": "quadratic", "alpha": 1, "beta": 1, "tolerance": 1})");
  CHECK(quadratic["batches"] == Json::parse("[[[0,0],[0,3]],[[0,1],[0,2]]]"));
  // Padded attention: the bound is algorithm 1's 10, and two fives padded are not above it.
  const auto padded = answer("post-balance", R"({"lengths": [[5, 5, 3, 3, 2, 2], []],
      "algorithm": "padded-attention", "alpha": 1, "beta": 1})");
  CHECK(padded["batches"] == Json::parse("[[[0,0],[0,1]],[[0,2],[0,3],[0,4],[0,5]]]"));
}

TEST_CASE("post-balance chooses by the phase", "[solve]") {
  // Padded: 1, 1 | 8, 8 costs 2 and 16; 8, 1 each would cost 16 and 16. Unpadded: 9 and 9.
  const std::string lengths = R"({"lengths": [[8, 1], [8, 1]], "algorithm": "auto")";
  CHECK(answer("post-balance", lengths + "}")["loads"] == Json::parse("[9.0,9.0]"));
  CHECK(answer("post-balance", lengths + R"(, "padding": true})")["loads"] ==
        Json::parse("[2.0,16.0]"));
}

TEST_CASE("node-wise reads a matrix or triples", "[solve]") {
  const auto matrix = answer("node-wise", R"({"volume": [[0, 7], [5, 0]], "ranks_per_node": 1})");
  CHECK(matrix["rank_of_batch"] == Json::parse("[1,0]"));
  CHECK(matrix["inter_node_max"] == 0.0);
  CHECK(matrix["optimal"] == true);
  const auto triples = answer(
      "node-wise", R"({"triples": [[0, 1, 7], [1, 0, 5]], "ranks": 2, "ranks_per_node": 1})");
  CHECK(triples["rank_of_batch"] == matrix["rank_of_batch"]);
  // Ranks 1 and 2 share a node, which keeps both batches that rank 1 fills.
  const auto unlike = answer("node-wise", R"({"triples": [[0, 2, 5], [1, 0, 6], [1, 1, 4]],
      "ranks": 3, "node_ranks": [1, 2]})");
  CHECK(unlike["rank_of_batch"] == Json::parse("[1,2,0]"));
  CHECK(unlike["inter_node_max"] == 0.0);
}

TEST_CASE("token-blocks gives the published owners", "[solve]") {
  const auto output = answer("token-blocks", R"({"samples": [{"tokens": 684}], "devices": 4})");
  CHECK(output["owner"] == Json::parse("[2,3,3,2,1,0]"));
  CHECK(output["loads"] == Json::parse("[22,20,20,20]"));
}

// Workloads as `simulate` takes them.
Json samples_json(const std::vector<balancer::Workload>& workloads) {
  Json samples = Json::array();
  for (const auto& [encoder_ms, llm_ms] : workloads)
    samples.push_back({{"encoder_ms", encoder_ms}, {"llm_ms", llm_ms}});
  return samples;
}

TEST_CASE("an integer program without an answer says what stands instead", "[solve]") {
  // 5,000 samples in 8 buckets are more variables than go to CBC.
  Json input{{"samples", samples_json(std::vector<balancer::Workload>(5000, {1, 1}))},
             {"buckets", 8},
             {"method", "ilp"}};
  const auto output = answer("ilp-partition", input.dump());
  CHECK(output["method"] == "lpt");
  CHECK(output["note"].get<std::string>().find("longest first") != std::string::npos);
  input["method"] = "lpt";
  CHECK(!answer("ilp-partition", input.dump()).contains("note"));
}

TEST_CASE("rearrange composes and inverts", "[solve]") {
  // First: batch 0 = b of rank 0, batch 1 = a of rank 0. Second swaps the batches.
  const auto output =
      answer("rearrange", R"({"first": [[[0,1]], [[0,0]]], "second": [[[1,0]], [[0,0]]]})");
  CHECK(output["composed"] == Json::parse("[[[0,0]],[[0,1]]]"));
  CHECK(output["inverse"] == Json::parse("[[[0,0],[1,0]],[]]"));
}

TEST_CASE("auto beats even and random microbatches on every distribution", "[solve][property]") {
  // 16 samples per microbatch and K = 4 x stages, balanced layouts.
  const auto distribution = GENERATE(from_range(balancer::distributions()));
  const std::string schedule = GENERATE("1f1b", "eager-1f1b");
  constexpr std::uint64_t seed = 1;
  CAPTURE(to_string(distribution), schedule);
  Json input{{"encoder_stages", 2},  {"llm_stages", 2},  {"microbatches", 16},
             {"schedule", schedule}, {"policy", "auto"}, {"seed", seed}};
  input["samples"] = samples_json(generate_workloads(distribution, 16 * 16, seed));
  const auto output = answer("simulate", input.dump());
  CHECK(output["step_ms"].get<double>() >= output["lower_bound_ms"].get<double>() * (1 - 1e-12));
  for (const auto* policy : {"dflop-search", "random"}) {
    input["policy"] = policy;
    CHECK(output["step_ms"].get<double>() <
          answer("simulate", input.dump())["step_ms"].get<double>());
  }
}

TEST_CASE("every balancing problem prints what it takes and refuses an empty object",
          "[solve][errors]") {
  const auto& problem = GENERATE_REF(from_range(balancing_problems()));
  CAPTURE(problem.name);
  CHECK(problem.schema.size() > 20);
  CHECK_FALSE(problem.summary.empty());
  const auto error = refusal(problem.name, "{}");
  CHECK(error.code == Errc::invalid_argument);
  CHECK_THAT(error.where, ContainsSubstring("input."));
  CHECK_FALSE(solve(problem.name, "[1]").ok());
}

TEST_CASE("errors name the field that is wrong", "[solve][errors]") {
  CHECK(refusal("replicas", R"({"samples": [{"encoder_ms": -1, "llm_ms": 1}], "speeds": [1]})")
            .where == "input.samples[0].encoder_ms");
  for (const auto* number : {"1e999", "-1e400"}) {
    const auto large =
        refusal("hierarchical", std::string(R"({"microbatches": 1, "samples": )") +
                                    R"([{"llm_ms": 1, "encoder_ms": )" + number + "}]}");
    CHECK(large.code == Errc::invalid_argument);
    CHECK_THAT(large.message, ContainsSubstring("a number is too large"));
  }
  CHECK(refusal("ilp-partition", R"({"samples": [], "buckets": 1, "time_limit_ms": 0})").where ==
        "input.time_limit_ms");
  CHECK(refusal("ilp-partition", R"({"samples": [], "buckets": 0})").where == "input.buckets");
  CHECK(refusal("ilp-partition", R"({"samples": [], "bucket": 1})").fix ==
        "did you mean `buckets`?");
  CHECK(refusal("post-balance", R"({"lengths": [[1], [2.5]]})").where == "input.lengths[1][0]");
  CHECK(refusal("post-balance", R"({"lengths": [[1], 2]})").where == "input.lengths[1]");
  CHECK(refusal("post-balance", R"({"lengths": [[18446744073709551615]]})").where ==
        "input.lengths[0][0]");
  CHECK(refusal("post-balance", R"({"lengths": [], "algorithm": "no-padding"})").where ==
        "lengths");
  CHECK(refusal("node-wise", R"({"volume": [[1, 2]], "ranks_per_node": 1})").where ==
        "input.volume[0]");
  CHECK(
      refusal("node-wise", R"({"triples": [[0, 5, 1]], "ranks": 2, "ranks_per_node": 1})").where ==
      "input.triples[0]");
  CHECK(refusal("node-wise", R"({"ranks_per_node": 1})").where == "input.volume");
  CHECK(
      refusal("node-wise", R"({"volume": [[1]], "ranks_per_node": 1, "node_ranks": [1]})").where ==
      "input.node_ranks");
  CHECK(refusal("node-wise", R"({"volume": [[1]], "node_ranks": [2]})").where == "node_ranks");
  CHECK(refusal("node-wise", R"({"volume": [[1]], "node_ranks": []})").where == "input.node_ranks");
  CHECK(refusal("token-blocks", R"({"samples": [{"tokens": 4, "spans": [[1]]}], "devices": 1})")
            .where == "input.samples[0].spans");
  CHECK(refusal("token-blocks", R"({"samples": [{"tokens": 4, "spans": [[3, 9]]}], "devices": 1})")
            .where == "sample 0");
  CHECK(refusal("rearrange", R"({"first": [[[0,0]],[[0,0]]], "second": []})").where ==
        "input.first, batch 1");
  CHECK(refusal("rearrange", R"({"first": [[[0,0]]], "second": [[[0,-1]]]})").where ==
        "input.second[0][0]");
}

}  // namespace
}  // namespace troupe::app
