// Every problem with every value of a sound input replaced: an answer or an error that helps, in
// bounded time and memory, never a crash.

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>

#include "app/solve/problem.hpp"

namespace troupe::app {
namespace {

/// A sound input of each problem with as many of its fields as one input can have.
const std::multimap<std::string, std::string>& examples() {
  static const std::multimap<std::string, std::string> inputs{
      {"partition", R"({"costs": [2, 4, 6, 8, 10, 12], "stages": 3})"},
      {"module-partition", R"({"modules": [
         {"name": "vision", "freeze": true, "next": ["projector"],
          "layers": [{"forward_ms": 1, "input_grad_ms": 1, "weight_grad_ms": 1}]},
         {"name": "projector", "freeze": false, "next": ["llm"], "attach": "llm",
          "layers": [{"forward_ms": 1, "input_grad_ms": 1, "weight_grad_ms": 1}]},
         {"name": "llm", "freeze": false, "next": [],
          "layers": [{"forward_ms": 1, "input_grad_ms": 1, "weight_grad_ms": 1},
                     {"forward_ms": 2, "input_grad_ms": 1, "weight_grad_ms": 1}]}],
         "devices": 3, "microbatches": 4})"},
      {"templates", R"({"layers": [
         {"forward_ms": 4, "backward_ms": 4, "memory_bytes": 8, "in_node_sync_ms": {"2": 2}},
         {"forward_ms": 4, "backward_ms": 4, "memory_bytes": 8, "in_node_sync_ms": {"2": 2}}],
         "nodes": 2, "gpus_per_node": 2, "fault_tolerance": 0, "device_memory_bytes": 80,
         "min_nodes": 1, "microbatches": 8})"},
      {"instantiate", R"({"templates": [{"nodes": 2, "microbatch_ms": 10},
         {"nodes": 3, "microbatch_ms": 7}], "nodes": 7, "fault_tolerance": 1, "global_batch": 64,
         "microbatch_size": 2})"},
      {"distribute", R"({"microbatch_ms": [4, 8], "global_batch": 24, "microbatch_size": 2})"},
      {"reconfigure", R"({"pipelines": [[0, 1], [2, 3, 4, 5]], "minimum": 2, "ranks_per_node": 1,
         "fault_tolerance": 0, "lost": [1], "joined": [7]})"},
      {"copy-plan", R"({"bytes": {"0": 4, "1": 6}, "holders": {"0": [0], "1": [0, 1]},
         "needs": {"0": [2], "1": [2]}})"},
      {"profile-batch", R"({"samples": [{"vision": 1, "llm": 2}, {"vision": 2, "llm": 2}],
         "devices": 8, "dp": 2, "alpha": 0.2, "p_error": 0.2, "first_size": 4, "seed": 1})"},
      {"layout", R"({"modules": [
         {"name": "vision", "next": ["llm"], "freeze": false, "layers": 2, "state_bytes": 10,
          "valid_tp": [1, 2], "valid_cp": [1], "speedup": {"2,1": 1.9}, "offloaded_share": 0.5,
          "leaving_bytes": 4},
         {"name": "llm", "next": [], "freeze": false, "layers": 4, "state_bytes": 10,
          "valid_tp": [1, 2], "valid_cp": [1]}],
         "samples": [{"vision": {"forward_ms": 1, "backward_ms": 2, "activation_bytes": 1,
                                 "boundary_bytes": 1},
                      "llm": {"forward_ms": 2, "backward_ms": 4, "activation_bytes": 1,
                              "boundary_bytes": 0}}],
         "devices": 4, "devices_per_node": 2, "device_memory_bytes": 1000, "global_batch": 8,
         "microbatch_sizes": [1, 2],
         "link": {"node_gigabytes_per_s": 100, "network_gigabytes_per_s": 10},
         "placement": "disjoint", "objective": "dflop", "seed": 1})"},
      {"schedule", R"({"stages": [
         {"name": "vision", "device": "gpu0", "next": ["llm.0"], "forward_ms": [2, 4],
          "input_grad_ms": 2, "weight_grad_ms": 2, "parts": [[0.5, 0.5], [1]]},
         {"name": "llm.0", "next": [], "forward_ms": 1, "input_grad_ms": 1, "weight_grad_ms": 1}],
         "microbatches": 2, "needs": {"llm.0": [["vision:0.0"], ["vision:0.1", "vision:1"]]},
         "schedule": "split-1f1b", "links": {"vision>llm.0": 1}, "link_ms": 0.5,
         "max_in_flight": {"vision": 2}})"},
      {"check", R"({"input": {"stages": [
         {"name": "a", "next": ["b"], "forward_ms": 1, "input_grad_ms": 1, "weight_grad_ms": 1},
         {"name": "b", "next": [], "forward_ms": 1, "input_grad_ms": 1, "weight_grad_ms": 1}],
         "microbatches": 1}, "order": {"a": ["F0", "B0"], "b": ["F0", "I0", "W0"]}})"},
      {"simulate", R"({"samples": [{"encoder_ms": 1, "llm_ms": 2}, {"encoder_ms": 2, "llm_ms": 2},
         {"encoder_ms": 1, "llm_ms": 3}], "encoder_stages": 1, "llm_stages": 2, "microbatches": 2,
         "policy": "deferral", "schedule": "1f1b", "seed": 1, "freeze": ["encoder"]})"},
      {"replicas", R"({"samples": [{"encoder_ms": 1, "llm_ms": 2}], "speeds": [1, 2]})"},
      {"hierarchical", R"({"samples": [{"encoder_ms": 1, "llm_ms": 2},
         {"encoder_ms": 2, "llm_ms": 2}], "microbatches": 2, "deferral": true, "llm_cap": 9})"},
      {"ilp-partition", R"({"samples": [{"encoder_ms": 1, "llm_ms": 2},
         {"encoder_ms": 2, "llm_ms": 2}], "buckets": 2, "time_limit_ms": 50, "method": "search"})"},
      {"post-balance", R"({"lengths": [[8, 1], [8, 1]], "algorithm": "quadratic", "padding": false,
         "attention": "flash", "alpha": 1, "beta": 0.5, "tolerance": 2, "max_load": 1000})"},
      {"node-wise", R"({"triples": [[0, 1, 7], [1, 0, 5]], "ranks": 2, "ranks_per_node": 1,
         "time_limit_ms": 50})"},
      {"node-wise", R"({"triples": [[0, 2, 7], [1, 0, 5]], "ranks": 3, "node_ranks": [1, 2],
         "time_limit_ms": 50})"},
      {"token-blocks", R"({"samples": [{"tokens": 684, "spans": [[3, 9]]}], "block": 128,
         "tile": 32, "devices": 4, "method": "lpt"})"},
      {"rearrange", R"({"first": [[[0, 1]], [[0, 0]]], "second": [[[1, 0]], [[0, 0]]]})"}};
  return inputs;
}

/// Paths of all values below the root.
void collect(const Json& value, const Json::json_pointer& at,
             std::vector<Json::json_pointer>& all) {
  if (!at.empty()) all.push_back(at);
  if (value.is_object())
    for (const auto& [key, child] : value.items()) collect(child, at / key, all);
  if (value.is_array())
    for (std::size_t i = 0; i < value.size(); ++i) collect(value[i], at / i, all);
}

const std::vector<Json>& replacements() {
  static const std::vector<Json> values{nullptr,
                                        true,
                                        -1,
                                        0,
                                        1,
                                        2,
                                        0.5,
                                        1e-300,
                                        1e9,
                                        1e6,
                                        1e18,
                                        1e19,
                                        1e308,
                                        -1e308,
                                        "",
                                        "llm",
                                        "F9999999999",
                                        Json::array(),
                                        Json::object(),
                                        Json::array({1}),
                                        Json::array({nullptr}),
                                        Json::array({Json::array()}),
                                        Json{{"x", 1}}};
  return values;
}

/// No nulls and no numbers that JSON cannot write.
bool is_complete(const Json& value) {
  if (value.is_number_float()) return std::isfinite(value.get<double>());
  for (const auto& child : value)
    if (value.is_structured() && !is_complete(child)) return false;
  return !value.is_null();
}

void expect_answer_or_error(const std::string& problem, const Json& input) {
  const std::string text = input.dump();
  INFO(problem << " " << text);
  const auto output = solve(problem, text);
  if (output.ok()) {
    REQUIRE(is_complete(output.value()));
    return;
  }
  REQUIRE(exit_code(output.error()) == 2);
  REQUIRE_FALSE(output.error().message.empty());
  REQUIRE_FALSE(output.error().where.empty());
}

TEST_CASE("every problem solves its example", "[solve]") {
  std::set<std::string> names;
  for (const auto& problem : all_problems()) names.insert(problem.name);
  for (const auto& [problem, input] : examples()) {
    const auto output = solve(problem, input);
    INFO(problem << " " << (output.ok() ? "" : to_string(output.error())));
    CHECK(output.ok());
    names.erase(problem);
  }
  INFO((names.empty() ? "" : *names.begin()));
  CHECK(names.empty());
}

TEST_CASE("any value may be replaced by any other", "[solve][errors]") {
  for (const auto& [problem, text] : examples()) {
    const Json sound = Json::parse(text);
    std::vector<Json::json_pointer> paths;
    collect(sound, Json::json_pointer(), paths);
    for (const auto& path : paths) {
      for (const auto& value : replacements()) {
        Json input = sound;
        input[path] = value;
        expect_answer_or_error(problem, input);
      }
      Json input = sound;
      auto& parent = input[path.parent_pointer()];
      if (parent.is_object())
        parent.erase(path.back());
      else
        parent.erase(parent.begin() + std::stol(path.back()));
      expect_answer_or_error(problem, input);
      input = sound;
      if (auto& list = input[path.parent_pointer()]; list.is_array()) {
        list.push_back(list.front());
        expect_answer_or_error(problem, input);
      }
    }
  }
}

TEST_CASE("inputs with several broken values are answered too", "[solve][errors][property]") {
  for (const auto& [problem, text] : examples()) {
    const Json sound = Json::parse(text);
    std::vector<Json::json_pointer> paths;
    collect(sound, Json::json_pointer(), paths);
    std::mt19937 random(7);
    for (int i = 0; i < 400; ++i) {
      Json input = sound;
      for (int k = 0; k < 3; ++k) {
        const auto& path = paths[random() % paths.size()];
        // What an earlier change cut off cannot be changed any more.
        if (input.contains(path)) input[path] = replacements()[random() % replacements().size()];
      }
      expect_answer_or_error(problem, input);
    }
  }
}

}  // namespace
}  // namespace troupe::app
