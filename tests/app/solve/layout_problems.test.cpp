#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "app/solve/problem.hpp"

namespace troupe::app {
namespace {

Json example() {
  return Json::parse(R"({
    "modules": [
      {"name": "vision", "next": ["llm"], "freeze": false, "layers": 4, "state_bytes": 400,
       "valid_tp": [1, 2], "valid_cp": [1], "speedup": {"2,1": 1.5}},
      {"name": "llm", "next": [], "freeze": false, "layers": 8, "state_bytes": 800,
       "valid_tp": [1], "valid_cp": [1]}],
    "samples": [
      {"vision": {"forward_ms": 4, "backward_ms": 8, "activation_bytes": 10, "boundary_bytes": 5},
       "llm": {"forward_ms": 8, "backward_ms": 16, "activation_bytes": 10, "boundary_bytes": 0}},
      {"llm": {"forward_ms": 8, "backward_ms": 16, "activation_bytes": 10, "boundary_bytes": 0}}],
    "devices": 6, "devices_per_node": 6, "device_memory_bytes": 1000000, "global_batch": 12,
    "microbatch_sizes": [1, 2], "link": {"node_gigabytes_per_s": 200, "network_gigabytes_per_s": 25},
    "placement": "disjoint", "objective": "entrain", "seed": 0})");
}

TEST_CASE("layout answers for every placement and objective within the devices", "[app]") {
  for (const std::string placement : {"disjoint", "shared"})
    for (const std::string objective : {"entrain", "dflop"}) {
      Json input = example();
      input["placement"] = placement;
      input["objective"] = objective;
      const auto result = solve("layout", input.dump());
      INFO(placement << " " << objective);
      REQUIRE(result.ok());
      const Json& output = result.value();
      int used = 0;
      int most = 0;
      for (const auto& [name, layout] : output["layouts"].items()) {
        const int devices = layout["tp"].get<int>() * layout["cp"].get<int>() *
                            layout["pp"].get<int>() * layout["dp"].get<int>();
        used += devices;
        most = std::max(most, devices);
        CHECK(layout["cuts"].size() == layout["pp"].get<std::size_t>() + 1);
      }
      CHECK((placement == "shared" ? most : used) <= 6);
      CHECK(output["expected_step_ms"] > 0);
      CHECK(output["memory_bytes"].size() == 2);
      CHECK(output["evaluated"] > 0);
    }
}

TEST_CASE("layout counts rows that wait where it is told to", "[app]") {
  // By hand: the same in tests/scheduler/layout.test.cpp.
  Json input = example();
  input["placement"] = "shared";
  input["devices"] = 2;
  input["device_memory_bytes"] = 650;
  input["microbatch_sizes"] = Json::array({1});
  input["modules"][0]["valid_tp"] = Json::array({1});
  input["modules"][0].erase("speedup");
  input["samples"].erase(1);
  CHECK(solve("layout", input.dump()).value()["expected_step_ms"] == 252);
  input["counts_rows"] = true;
  CHECK(solve("layout", input.dump()).value()["expected_step_ms"] == 270);
  input["counts_rows"] = "yes";
  CHECK_FALSE(solve("layout", input.dump()).ok());
}

TEST_CASE("layout and profile-batch refuse bad input with the path", "[app][errors]") {
  const auto refused = [](const std::string& problem, const Json& input) {
    const auto result = solve(problem, input.dump());
    REQUIRE_FALSE(result.ok());
    CHECK(exit_code(result.error()) == 2);
    return result.error();
  };
  Json input = example();
  input["modules"][0]["next"][0] = "lm";
  CHECK(refused("layout", input).fix == "did you mean `llm`?");
  input = example();
  input["modules"][0]["speedup"] = {{"2", 1.5}};
  CHECK(refused("layout", input).where == "input.modules[0].speedup.2");
  input = example();
  input["samples"][1]["llm"]["forward_ms"] = -1;
  CHECK(refused("layout", input).where == "input.samples[1].llm.forward_ms");
  input = example();
  input["placement"] = "both";
  CHECK(refused("layout", input).where == "input.placement");
  input = example();
  input["device_memory_bytes"] = 1;
  CHECK(refused("layout", input).message.find("no layout") != std::string::npos);
  CHECK(refused("profile-batch", Json::parse(R"({"samples": [], "devices": 2})")).where ==
        "samples");
  CHECK(refused("profile-batch", Json::parse(R"({"samples": [{"a": 1}], "devices": 3, "dp": 2})"))
            .where == "devices");
}

TEST_CASE("profile-batch allocates by module name", "[app]") {
  const auto result = solve("profile-batch", R"({"samples": [{"vision": 1, "llm": 3}, {"llm": 4}],
    "devices": 16, "dp": 2, "alpha": 0.05, "p_error": 0.05, "first_size": 2, "seed": 1})");
  REQUIRE(result.ok());
  CHECK(result.value()["trials"] == 59);
  CHECK(result.value()["allocation"] == Json::parse(R"({"vision": 1, "llm": 7})"));
}

}  // namespace
}  // namespace troupe::app
