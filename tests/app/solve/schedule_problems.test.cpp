#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>

#include "app/solve/choices.hpp"
#include "app/solve/problem.hpp"
#include "balancer/microbatches/policies.hpp"
#include "scheduler/iteration/schedules.hpp"

namespace troupe::app {
namespace {

Json solved(const std::string& problem, const Json& input) {
  auto result = solve(problem, input.dump());
  INFO((result.ok() ? "" : to_string(result.error())));
  REQUIRE(result.ok());
  CHECK(result.value().contains("compute_ms"));
  return result.value();
}

Error refused(const std::string& problem, const Json& input) {
  const auto result = solve(problem, input.dump());
  REQUIRE_FALSE(result.ok());
  CHECK(exit_code(result.error()) == 2);
  return result.error();
}

/// Encoder and two llm stages; the first llm stage shares the encoder's device.
Json example() {
  return Json::parse(R"({
    "stages": [
      {"name": "vision", "device": "gpu0", "next": ["llm.0"], "forward_ms": [2, 4],
       "input_grad_ms": 2, "weight_grad_ms": 2, "parts": [[0.5, 0.5], [1]]},
      {"name": "llm.0", "device": "gpu0", "next": ["llm.1"], "forward_ms": 1,
       "input_grad_ms": 1, "weight_grad_ms": 1},
      {"name": "llm.1", "forward_ms": 3, "input_grad_ms": 3, "weight_grad_ms": 3}],
    "microbatches": 2,
    "needs": {"llm.0": [["vision:0.0"], ["vision:0.1", "vision:1"]]},
    "schedule": "split-1f1b", "link_ms": 0.5})");
}

TEST_CASE("schemas name every policy and every schedule that there is", "[app]") {
  const auto problems = schedule_problems();
  const auto schema_of = [&](const std::string& name) {
    const auto found = std::ranges::find(problems, name, &Problem::name);
    REQUIRE(found != problems.end());
    return found->schema;
  };
  const std::string simulate = schema_of("simulate"), schedule = schema_of("schedule");
  for (const std::string& name : balancer::policy_names())
    CHECK(simulate.find('"' + name + '"') != std::string::npos);
  for (const std::string& name : scheduler::schedule_names())
    CHECK(schedule.find('"' + name + '"') != std::string::npos);
  CHECK(choices({"a", "b"}, 4) == R"("a" | "b")");
  // Two of 40 letters fill a line behind four spaces: 4 + 42 + 3 + 42 and a bar.
  const std::string name(40, 'x'), quoted = '"' + name + '"';
  CHECK(choices({name, name, name}, 4) == quoted + " |\n    " + quoted + " |\n    " + quoted);
}

TEST_CASE("schedule names stages on shared devices and parts of split microbatches", "[app]") {
  const Json output = solved("schedule", example());
  // Encoder F0.0 0-1, then by microbatch: F0.1 1-2, llm F0 2-3 (lower part first is the encoder's).
  CHECK(output["order"]["gpu0"][0] == "vision:F0.0");
  CHECK(output["order"]["gpu0"].size() == 10);
  CHECK(output["order"]["llm.1"] == Json::parse(R"(["F0", "B0", "F1", "B1"])"));
  CHECK(output["peak_in_flight"]["llm.1"] == 1);
  CHECK(output["idle_ms"].size() == 2);
  const double work = 2 + 4 + 2 * 4 + 2 * 3;  // Forward, backward of vision, all of llm.0.
  CHECK(std::abs(output["step_ms"].get<double>() - output["idle_ms"]["gpu0"].get<double>() - work) <
        1e-9);
}

TEST_CASE("check accepts what schedule makes, for every schedule", "[app]") {
  for (const std::string schedule : {"1f1b", "eager-1f1b", "split-1f1b", "zero-bubble",
                                     "eager-zero-bubble", "gpipe", "dip", "three-phase"}) {
    Json input = example();
    input["schedule"] = schedule;
    const Json order = solved("schedule", input)["order"];
    INFO(schedule << " " << order.dump());
    CHECK(solved("check", {{"input", input}, {"order", order}})["faults"].empty());
  }
}

TEST_CASE("check finds each planted fault under its kind", "[app]") {
  const Json input = example();
  const Json sound = solved("schedule", input)["order"];
  const auto kinds = [&](const Json& order, Json bounds = nullptr) {
    Json bounded = input;
    if (!bounds.is_null()) bounded["max_in_flight"] = bounds;
    std::string kinds;
    const Json output = solved("check", {{"input", bounded}, {"order", order}});
    for (const auto& fault : output["faults"])
      kinds += (kinds.empty() ? "" : " ") + fault["kind"].get<std::string>();
    return kinds;
  };
  Json order = sound;
  order["llm.1"].erase(3);
  CHECK(kinds(order) == "missing");
  order = sound;
  order["llm.1"].push_back("B1");
  CHECK(kinds(order) == "duplicate");
  order = sound;
  order["llm.1"].push_back("F7");
  CHECK(kinds(order) == "unknown");
  order = sound;
  order["gpu7"] = Json::array({"F0"});
  CHECK(kinds(order) == "unknown");
  CHECK(solved("check", {{"input", input}, {"order", order}})["faults"][0]["device"] == "gpu7");
  order = sound;
  order["llm.1"] = Json::parse(R"(["B0", "F0", "F1", "B1"])");
  CHECK(kinds(order) == "dependency");
  // llm.1 wants both forwards first, gpu0 a backward between its forwards.
  order["llm.1"] = Json::parse(R"(["F0", "F1", "B0", "B1"])");
  order["gpu0"] = Json::parse(R"(["vision:F0", "vision:F1", "llm.0:F0", "llm.0:B0", "llm.0:F1",
                                  "llm.0:B1", "vision:B0", "vision:B1"])");
  CHECK(kinds(order) == "deadlock deadlock");
  CHECK(kinds(sound, {{"llm.0", 2}, {"vision", 1}}) == "memory");
}

TEST_CASE("the schedule input is refused with the path and the fix", "[app][errors]") {
  Json input = example();
  input["stages"][0]["next"] = Json::array({"llm0"});
  auto error = refused("schedule", input);
  CHECK(error.where == "input.stages[0].next");
  CHECK(error.fix == "did you mean `llm.0`?");

  input = example();
  input["stages"][1]["forward_ms"] = Json::array({1, 2, 3});
  CHECK(refused("schedule", input).message.find("3 entries") != std::string::npos);

  input = example();
  input["stages"][2]["forward_ms"] = -1;
  CHECK(refused("schedule", input).where == "input.stages[2].forward_ms");

  input = example();
  input["stages"][0]["parts"][0] = Json::array({0.5, 0.6});
  CHECK(refused("schedule", input).message.find("sum to") != std::string::npos);

  input = example();
  input["needs"]["llm.0"][0][0] = "vision:0.5";
  CHECK(refused("schedule", input).message.find("part 5") != std::string::npos);

  input = example();
  input["stages"][2]["next"] = Json::array({"vision"});
  CHECK(refused("schedule", input).message.find("circle") != std::string::npos);

  input = example();
  input["max_in_flight"] = {{"vision", 0}};
  CHECK(refused("schedule", input).where == "input.max_in_flight.vision");

  input = example();
  input["schedule"] = "1f1c";
  CHECK(refused("schedule", input).fix.find("1f1b") != std::string::npos);

  input = example();
  input["microbatches"] = 1e6;
  refused("schedule", input);
}

Json simulation(const std::string& policy, const std::string& schedule) {
  Json samples = Json::array();
  for (int i = 0; i < 48; ++i)
    samples.push_back({{"encoder_ms", 1 + (i * 7) % 11}, {"llm_ms", 2 + (i * 5) % 13}});
  return {{"samples", samples}, {"encoder_stages", 2},  {"llm_stages", 2}, {"microbatches", 6},
          {"policy", policy},   {"schedule", schedule}, {"seed", 1}};
}

TEST_CASE("simulate balances, bounds and repeats", "[app]") {
  const Json random = solved("simulate", simulation("random", "1f1b"));
  const Json deferral = solved("simulate", simulation("deferral", "eager-1f1b"));
  CHECK(deferral["encoder_std_ms"] < random["encoder_std_ms"]);
  CHECK(deferral["step_ms"] < random["step_ms"]);
  for (const Json& output : {random, deferral}) {
    CHECK(output["step_ms"] >= output["lower_bound_ms"]);
    CHECK(output["bubble"] >= 0);
    CHECK(output["peak_in_flight"].size() == 4);
  }
  CHECK(solved("simulate", simulation("random", "1f1b"))["step_ms"] == random["step_ms"]);
  Json frozen = simulation("random", "1f1b");
  frozen["freeze"] = Json::array({"encoder"});
  CHECK(solved("simulate", frozen)["step_ms"] < random["step_ms"]);
}

TEST_CASE("simulate takes another machine", "[app]") {
  const Json plain = solved("simulate", simulation("random", "1f1b"));
  const auto with = [](const char* key, double value) {
    Json input = simulation("random", "1f1b");
    input[key] = value;
    return input;
  };
  CHECK(solved("simulate", with("backward_over_forward", 2))["step_ms"] == plain["step_ms"]);
  CHECK(solved("simulate", with("backward_over_forward", 4))["step_ms"] > plain["step_ms"]);
  CHECK(solved("simulate", with("link_ms", 5))["step_ms"] > plain["step_ms"]);
  Json tight = simulation("random", "1f1b");
  tight["max_in_flight"] = 1;
  const Json one = solved("simulate", tight);
  CHECK(one["step_ms"] > plain["step_ms"]);
  for (const auto& [stage, peak] : one["peak_in_flight"].items()) CHECK(peak == 1);
  CHECK(refused("simulate", with("backward_over_forward", -1)).where ==
        "input.backward_over_forward");
  tight["max_in_flight"] = 0;
  CHECK(refused("simulate", tight).where == "input.max_in_flight");
}

TEST_CASE("simulate refuses what it cannot run", "[app][errors]") {
  Json input = simulation("randm", "1f1b");
  CHECK(refused("simulate", input).fix.find("random") != std::string::npos);
  input = simulation("random", "1f1b");
  input["samples"] = Json::array();
  refused("simulate", input);
  input = simulation("random", "1f1b");
  input["freeze"] = Json::array({"vision"});
  CHECK(refused("simulate", input).where == "input.freeze");
  input = simulation("random", "1f1b");
  input["samples"][3]["llm_ms"] = -2;
  CHECK(refused("simulate", input).where == "input.samples[3].llm_ms");
  input = simulation("random", "1f1b");
  input["encoder_stages"] = 0;
  refused("simulate", input);
}

}  // namespace
}  // namespace troupe::app
