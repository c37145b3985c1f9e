#include "runtime/observe/plan_json.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/runtime/observe/example_plan.hpp"

using Catch::Matchers::ContainsSubstring;

namespace troupe::observe {
namespace {

using Json = nlohmann::json;

TEST_CASE("a plan is read back equal", "[observe]") {
  const auto plan = testing::example_plan();
  const auto read = parse_plan(plan_json(plan, 3));
  REQUIRE(read.ok());
  CHECK(read.value().epoch_number == 3);
  CHECK(read.value().plan == plan);
}

TEST_CASE("an llm that attends by modality is read back, a causal one says nothing of it",
          "[observe][errors]") {
  auto plan = testing::example_plan();
  plan.model.modules.back().attention = AttentionRule::modality;
  auto json = Json::parse(plan_json(plan, 3));
  CHECK(parse_plan(json.dump()).value().plan == plan);
  json["modules"].back()["attention"] = "causally";
  CHECK_THAT(parse_plan(json.dump()).error().message, ContainsSubstring("no attention"));
  json["modules"].back().erase("attention");
  CHECK(parse_plan(json.dump()).value().plan == testing::example_plan());
}

TEST_CASE("whose moments are in host memory is read back, others' plans say nothing of it",
          "[observe]") {
  auto plan = testing::example_plan();
  CHECK_FALSE(Json::parse(plan_json(plan, 3))["modules"].front().contains("moments_in_host"));
  plan.model.modules.front().moments_in_host = true;
  CHECK(parse_plan(plan_json(plan, 3)).value().plan == plan);
}

TEST_CASE("whose parameters are in host memory is read back, others' plans say nothing of it",
          "[observe]") {
  auto plan = testing::example_plan();
  CHECK_FALSE(Json::parse(plan_json(plan, 3))["modules"].front().contains("parameters_in_host"));
  plan.model.modules.front().parameters_in_host = true;
  CHECK(parse_plan(plan_json(plan, 3)).value().plan == plan);
}

TEST_CASE("the order of a sum is read back; older plans say nothing of it and are chains",
          "[observe][errors]") {
  auto plan = testing::example_plan();
  plan.groups[1].order = SumOrder::tree_by_node;
  auto json = Json::parse(plan_json(plan, 3));
  CHECK(json["groups"][0]["sum"] == "chain");
  CHECK(json["groups"][1]["sum"] == "tree_by_node");
  CHECK(parse_plan(json.dump()).value().plan == plan);
  json["groups"][1]["sum"] = "ring";
  CHECK_THAT(parse_plan(json.dump()).error().message, ContainsSubstring("no sum in the order"));
  for (auto& group : json["groups"]) group.erase("sum");
  CHECK(parse_plan(json.dump()).value().plan == testing::example_plan());
}

TEST_CASE("sums by NCCL are read back, and so is that the job wants them", "[observe]") {
  auto plan = testing::example_plan();
  CHECK_FALSE(Json::parse(plan_json(plan, 3)).contains("sums"));
  plan.model.sums = SumOrder::nccl;
  plan.groups[0].order = SumOrder::nccl;
  plan.groups[1].order = SumOrder::nccl_chain;
  CHECK(Json::parse(plan_json(plan, 3))["sums"] == "nccl");
  CHECK(parse_plan(plan_json(plan, 3)).value().plan == plan);
}

/// The example with a device on standby for its first group.
ParallelPlan plan_with_standby() {
  auto plan = testing::example_plan();
  ParameterGroup& group = plan.groups.front();
  plan.standbys = {{DeviceId{1}, group.uses.front().layer, {}}};
  group.holders.push_back(DeviceId{1});
  group.standbys = 1;
  return plan;
}

TEST_CASE("standby holders are read back, and must be those of the plan", "[observe][errors]") {
  const auto plan = plan_with_standby();
  CHECK(parse_plan(plan_json(plan, 3)).value().plan == plan);
  const auto refused = [&](const char* pointer, const Json& value, const char* message) {
    auto json = Json::parse(plan_json(plan, 3));
    json[Json::json_pointer(pointer)] = value;
    const auto read = parse_plan(json.dump());
    CAPTURE(pointer);
    REQUIRE_FALSE(read.ok());
    CHECK_THAT(read.error().message, ContainsSubstring(message));
  };
  refused("/standbys", Json::array(), "are not those on standby");
  refused("/standbys/0/device", 2, "are not those on standby");
  refused("/standbys/0/device", 4, "device 4 is not below 4");
  refused("/standbys/0/module", "visoin", "is unknown");
  refused("/groups/0/holders", Json{1, 0, 3}, "are not the devices that use it");
  auto older = Json::parse(plan_json(testing::example_plan(), 3));
  older.erase("standbys");
  CHECK(parse_plan(older.dump()).value().plan == testing::example_plan());
}

TEST_CASE("grids, their leads and what ranks share are read back", "[observe][errors]") {
  auto plan = testing::example_plan();
  Stage& last = plan.stages.back();  // On a device beside its own, which runs no other stage.
  last.grid = {1, 2};
  const DeviceId own = last.devices.front(), beside{plan.devices.size()};
  plan.devices.push_back({plan.devices[own.index()].node, 7});
  last.devices.push_back(beside);
  for (std::size_t d = 0; d < plan.devices.size(); ++d) plan.leads.push_back(DeviceId{d});
  plan.leads.back() = own;
  for (auto& module : plan.model.modules)
    for (auto& layer : module.layers) layer.splits = {{3, 0}, {4, 2}};
  for (auto& group : plan.groups) {
    if (!group.tied) group.splits = {{3, 0}, {4, 2}};
    if (std::ranges::any_of(group.uses, [&](const auto& use) {
          return use.stage.index() + 1 == plan.stages.size();
        }))
      group.holders.push_back(beside);
  }
  CHECK(parse_plan(plan_json(plan, 3)).value().plan == plan);
  auto json = Json::parse(plan_json(plan, 3));
  json["stages"].back()["cp"] = 1;
  CHECK_THAT(parse_plan(json.dump()).error().message, ContainsSubstring("has 2 devices"));
  json = Json::parse(plan_json(plan, 3));
  json["leads"].erase(0);
  CHECK_THAT(parse_plan(json.dump()).error().message, ContainsSubstring("not one per device"));
}

TEST_CASE("plan.json names stages and modules for people", "[observe]") {
  const auto json = Json::parse(plan_json(testing::example_plan(), 0));
  CHECK(json["stages"][2]["name"] == "llm.stage1");
  CHECK(json["stages"][2]["runs"][0] == Json{{"module", "llm"}, {"layers", {2, 4}}});
  CHECK(json["modules"][0]["next"] == Json{"projector"});
}

TEST_CASE("an iteration keeps samples, microbatches and parts", "[observe]") {
  const auto plan = testing::example_iteration();
  const auto line = iteration_line(plan);
  CHECK(line.find('\n') == std::string::npos);
  const auto read = parse_iteration(line);
  REQUIRE(read.ok());
  CHECK(read.value().step == 7);
  CHECK(read.value().epoch_number == 2);
  CHECK(read.value().ids == std::vector<std::string>{"s\"0", "s\"1", "s\"2"});
  CHECK(read.value().microbatches == plan.microbatches);
}

TEST_CASE("an iteration keeps the pieces that encoders took", "[observe]") {
  auto plan = testing::example_iteration();
  CHECK(iteration_line(plan).find("pieces") == std::string::npos);
  plan.pieces = {{0, ModuleId{0}, 0, 2}, {0, ModuleId{0}, 2, 1}};
  plan.microbatches[0][0].parts[0].samples.push_back(4);
  const auto read = parse_iteration(iteration_line(plan));
  REQUIRE(read.ok());
  CHECK(read.value().pieces == plan.pieces);
  CHECK(read.value().microbatches == plan.microbatches);
  plan.microbatches[0][0].parts[0].samples.back() = 5;  // Three samples and two pieces.
  CHECK_THAT(parse_iteration(iteration_line(plan)).error().message,
             ContainsSubstring("sample 5 is not below 5"));
  plan.microbatches[0][0].parts[0].samples.pop_back();
  plan.pieces[1].sample = 3;
  CHECK_THAT(parse_iteration(iteration_line(plan)).error().message,
             ContainsSubstring("sample 3 is not below 3"));
}

TEST_CASE("an iteration says by which way rows crossed each boundary", "[observe]") {
  auto plan = testing::example_iteration();
  CHECK(iteration_line(plan).find("boundaries") == std::string::npos);
  plan.boundaries = {{ModuleId{1}, ModuleGroupId{1}, Route::gather_scatter, true, {1, 2, 3}}};
  CHECK(Json::parse(iteration_line(plan))["boundaries"] ==
        Json::parse(R"([[1, 1, "gather-scatter", true]])"));
  CHECK(parse_iteration(iteration_line(plan)).ok());
}

TEST_CASE("a plan nested a hundred thousand deep is refused", "[observe][errors]") {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const auto& [pointer, value] :
       {std::pair{"/standbys", Json{"here"}}, {"/stages/0/runs/0/layers", Json{1, 1, "here"}}}) {
    auto json = Json::parse(plan_json(testing::example_plan(), 0));
    json[Json::json_pointer(pointer)] = value;
    std::string text = json.dump();
    text.replace(text.find("\"here\""), 6, deep);
    const auto read = parse_plan(text);
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().code == Errc::bad_data);
  }
}

TEST_CASE("indices out of range and unknown names are refused", "[observe][errors]") {
  const auto good = Json::parse(plan_json(testing::example_plan(), 0));
  const auto refused = [&](const char* pointer, const Json& value, const char* message) {
    auto json = good;
    json[Json::json_pointer(pointer)] = value;
    const auto read = parse_plan(json.dump());
    CAPTURE(pointer);
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().code == Errc::bad_data);
    CHECK_THAT(read.error().message, ContainsSubstring(message));
  };
  refused("/stages/0/runs/0/module", "visoin", "\"visoin\" is unknown");
  refused("/stages/0/runs/0/layers", Json{0, 2}, "layer 2 is not below 2");
  refused("/stages/0/runs/0/layers", Json{1, 1}, "are none");
  refused("/stages/0/devices", Json{4}, "device 4 is not below 4");
  refused("/stages/0/devices", Json::array(), "no device");
  refused("/stages/0/replica", -1, "replica -1");
  refused("/replicas/0/stages/0", 5, "stage 5 is not below 5");
  refused("/replicas/0/stages", Json::array(), "no stage");
  refused("/replicas/0/group", 2, "module group 2 is not below 2");
  refused("/replicas/0/pipeline", 2, "pipeline 2 is not below 2");
  refused("/pipelines/0/replicas/0", 4, "replica 4 is not below 4");
  refused("/pipelines/0/replicas", Json::array(), "no replica");
  refused("/module_groups/0/modules/0", "visoin", "\"visoin\" is unknown");
  refused("/groups/0/uses/0/layer", 1.5, "layer");
  refused("/groups/0/holders/0", 4, "device 4 is not below 4");
  refused("/groups/0/holders", Json::array(), "holders");
  refused("/groups/0/holders", Json{0, 2}, "holders");
  refused("/groups/0/holders", Json{0, 3, 0}, "holders");
  refused("/modules/0/kind", "decoder", "'decoder' is unknown");
  refused("/devices", "x", "cannot use at() with string");
  CHECK_THAT(parse_plan("{").error().message, ContainsSubstring("not valid JSON"));
  CHECK_THAT(parse_iteration("{}").error().message, ContainsSubstring("step"));
  CHECK_FALSE(parse_iteration(R"({"step":1,"epoch_number":0,"ids":["a"],)"
                              R"("replicas":[[[[1]]]]})")
                  .ok());
}

TEST_CASE("a damaged plan is refused or sound, never worse", "[observe][property]") {
  const auto seed = GENERATE(range(0u, 400u));
  std::mt19937 random(seed);
  auto json = Json::parse(plan_json(testing::example_plan(), 0)).flatten();
  // Replaces one leaf by something of another kind or range.
  auto leaf = json.begin();
  std::advance(leaf, static_cast<std::ptrdiff_t>(random() % json.size()));
  const Json values[] = {-1, 1000000, 1.5, "x", nullptr, true, 0, 18446744073709551615u};
  *leaf = values[random() % 8];
  CAPTURE(seed);
  const auto read = parse_plan(json.unflatten().dump());
  if (!read.ok()) {
    CHECK(read.error().code == Errc::bad_data);
    return;
  }
  const auto& plan = read.value().plan;
  for (const auto& stage : plan.stages) {
    CHECK(stage.replica.index() < plan.replicas.size());
    for (const auto& run : stage.runs)
      CHECK(static_cast<std::size_t>(run.layers.end) <= plan.model.at(run.module).layers.size());
  }
}

}  // namespace
}  // namespace troupe::observe
