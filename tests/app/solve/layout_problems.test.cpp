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

TEST_CASE("layout fits with what is in host memory while the llm computes", "[app]") {
  // Two devices have half of both modules each: 600 bytes of state, and 5 for a microbatch of one.
  Json input = example();
  input["placement"] = "shared";
  input["devices"] = 2;
  input["microbatch_sizes"] = Json::array({1});
  input["modules"][0]["valid_tp"] = Json::array({1});
  input["modules"][0].erase("speedup");
  input["samples"].erase(1);
  const auto within = [&](double bytes) {
    input["device_memory_bytes"] = bytes;
    return solve("layout", input.dump());
  };
  // One of each is 610, and nothing is told of moves that nobody asked for.
  CHECK_FALSE(within(606).ok());
  CHECK_FALSE(within(610).value().contains("host_memory_bytes"));
  // Of vision's 5 bytes 4 move, so that beside 1 that stays there are these or the llm's 5. Each
  // window has one microbatch, and the llm one in flight: 12 fills of 12 and of 24 ms.
  input["modules"][0]["offloaded_share"] = 0.8;
  REQUIRE(within(606).ok());
  const Json tight = within(606).value();
  REQUIRE(tight.contains("host_memory_bytes"));
  CHECK(tight["expected_step_ms"] == 144 + 288);
  CHECK(tight["memory_bytes"] == Json::parse(R"({"vision": 205.0, "llm": 405.0})"));
  CHECK(tight["host_memory_bytes"] == Json::parse(R"({"vision": 4.0, "llm": 0.0})"));
  CHECK(within(605).error().message.ends_with("all modules together 606"));
  // All twelve fit into one window, of which 4 bytes are there once: 12 + 11 x 6, 24 + 11 x 12.
  const Json roomy = within(650).value();
  CHECK(roomy["expected_step_ms"] == 78 + 156);
  CHECK(roomy["host_memory_bytes"]["vision"] == 48);
  // Of vision's 200 bytes of state on a device 50 leave, which is more than the llm's 5.
  input["modules"][0].erase("offloaded_share");
  input["modules"][0]["leaving_bytes"] = 100;
  REQUIRE(within(605).ok());
  CHECK(within(605).value()["host_memory_bytes"]["vision"] == 50);
  CHECK_FALSE(within(604).ok());
  // On devices of their own modules do not take turns.
  input["placement"] = "disjoint";
  CHECK(within(1000).value()["host_memory_bytes"]["vision"] == 0);
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
  input["modules"][0]["offloaded_share"] = 1.5;
  CHECK(refused("layout", input).where == "input.modules[0].offloaded_share");
  CHECK(refused("layout", input).fix == "nearest choice: 1.0");
  input = example();
  input["modules"][0]["leaving_bytes"] = 401;
  CHECK(refused("layout", input).where == "input.modules[0].leaving_bytes");
  CHECK(refused("layout", input).message.ends_with("401 are more than its 400"));
  for (const std::string key : {"offloaded_share", "leaving_bytes"}) {
    input = example();
    input["modules"][1][key] = 0;
    CHECK(solve("layout", input.dump()).ok());
    input["modules"][1][key] = 0.5;
    CHECK(refused("layout", input).where == "input.modules[1]." + key);
    CHECK(refused("layout", input).message.find("is the llm") != std::string::npos);
  }
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
