#include "scheduler/layout/place_by_hand.hpp"

#include <catch2/catch_test_macros.hpp>
#include <random>
#include <string>

#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/layout/layout_problems.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using testing::text_llm;
using testing::vision_audio_llm;

HandRun all(const std::string& module) { return {module, std::nullopt}; }
HandRun run(const std::string& module, int begin, int end) {
  return {module, LayerRange{begin, end}};
}

/// The stages of a plan as `p0 d1 vision[0,4) vision_projector[0,1)`.
std::vector<std::string> shown(const ParallelPlan& plan) {
  std::vector<std::string> lines;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    std::string line = "p" + std::to_string(plan.pipeline_of(StageId{s}).value) + " d" +
                       std::to_string(stage.devices.front().value);
    for (const auto& run : stage.runs)
      line += " " + plan.model.at(run.module).name + "[" + std::to_string(run.layers.begin) + "," +
              std::to_string(run.layers.end) + ")";
    lines.push_back(line);
  }
  return lines;
}

Error error_of(const HandLayout& layout, const ClusterShape& cluster,
               const ModelGraph& model = vision_audio_llm()) {
  auto plan = place_by_hand(model, layout, cluster);
  REQUIRE_FALSE(plan.ok());
  CHECK(plan.error().code == Errc::invalid_argument);
  CHECK_FALSE(plan.error().fix.empty());
  return plan.error();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("projectors sit beside their encoder and mixed entries become two stages",
          "[scheduler]") {
  // The example of the interface page, with the llm's second half on another device.
  const HandLayout layout{{{{0, 0, {run("vision", 0, 4), all("audio"), run("llm", 0, 2)}},
                            {1, 0, {run("llm", 2, 6)}}}}};
  const auto plan = place_by_hand(vision_audio_llm(), layout, {2, 1}).value();
  CHECK(shown(plan) ==
        std::vector<std::string>{"p0 d0 vision[0,4) vision_projector[0,1) audio[0,3) "
                                 "audio_projector[0,1)",
                                 "p0 d0 llm[0,2)", "p0 d1 llm[2,6)"});
  CHECK(plan.devices == std::vector<DeviceSlot>{{NodeId{0}, 0}, {NodeId{1}, 0}});
  CHECK(plan.node_of(StageId{2}) == NodeId{1});
}

TEST_CASE("a projector stands where it is named, and stages in topological order", "[scheduler]") {
  const HandLayout layout{{{{0, 1, {all("llm"), all("vision_projector")}},
                            {0, 0, {run("vision", 2, 4), all("audio")}},
                            {0, 0, {run("vision", 0, 1), run("vision", 1, 2)}}}}};
  const auto plan = place_by_hand(vision_audio_llm(), layout, {1, 2}).value();
  CHECK(shown(plan) == std::vector<std::string>{"p0 d0 vision[0,2)",
                                                "p0 d0 vision[2,4) audio[0,3) audio_projector[0,1)",
                                                "p0 d1 vision_projector[0,1)", "p0 d1 llm[0,6)"});
}

TEST_CASE("groups are per trainable layer, holders by pipeline and stage", "[scheduler]") {
  ModelGraph model = text_llm(3);
  model.modules[0].layers[0].parameter_elements = 0;
  model.tied = {{"llm.embed_tokens.weight", {{ModuleId{0}, 0}, {ModuleId{0}, 2}}, 640}};
  const HandLayout layout{
      {{{0, 0, {run("llm", 0, 1)}}, {1, 0, {run("llm", 1, 3)}}}, {{2, 0, {all("llm")}}}}};
  const auto plan = place_by_hand(model, layout, {3, 1}).value();
  const auto use = [](int stage, int layer) {
    return ParameterUse{StageId{stage}, {ModuleId{0}, layer}};
  };
  CHECK(plan.groups ==
        std::vector<ParameterGroup>{
            {"llm.embed_tokens.weight",
             true,
             640,
             {use(0, 0), use(1, 2), use(2, 0), use(2, 2)},
             {DeviceId{0}, DeviceId{1}, DeviceId{2}}},
            {"llm.layers.1", false, 11, {use(1, 1), use(2, 1)}, {DeviceId{1}, DeviceId{2}}},
            {"llm.layers.2", false, 12, {use(1, 2), use(2, 2)}, {DeviceId{1}, DeviceId{2}}}});
  model.modules[0].freeze = true;
  CHECK(place_by_hand(model, layout, {3, 1}).value().groups.empty());
}

TEST_CASE("without a layout one pipeline is cut evenly over all devices", "[scheduler]") {
  // 4 vision + 3 audio + 6 llm = 13 layers on 4 devices: 4, 3, 3, 3; projectors ride along.
  const auto plan = place_by_hand(vision_audio_llm(), {}, {2, 2}).value();
  CHECK(shown(plan) == std::vector<std::string>{"p0 d0 vision[0,4) vision_projector[0,1)",
                                                "p0 d1 audio[0,3) audio_projector[0,1)",
                                                "p0 d2 llm[0,3)", "p0 d3 llm[3,6)"});
  const auto single = place_by_hand(vision_audio_llm(), {}, {1, 1}).value();
  CHECK(single.stages.size() == 2);
  CHECK(contains(error_of({}, {14, 1}).message, "13 layers"));
}

TEST_CASE("names, nodes, devices and ranges that do not exist are refused", "[scheduler][errors]") {
  const auto unknown = error_of({{{{0, 0, {all("vison"), all("llm")}}}}}, {1, 1});
  CHECK(unknown.where == "parallel.pipelines[0].stages[0]");
  CHECK(contains(unknown.fix, "vision"));
  CHECK(error_of({{{{1, 0, {all("llm")}}}}}, {1, 1}).where ==
        "parallel.pipelines[0].stages[0].node");
  CHECK(error_of({{{{0, -1, {all("llm")}}}}}, {1, 1}).where ==
        "parallel.pipelines[0].stages[0].device");
  const auto range =
      error_of({{{{0, 0, {all("vision"), all("audio"), run("llm", 2, 7)}}}}}, {1, 1});
  CHECK(range.where == "parallel.pipelines[0].stages[0].llm");
  CHECK(contains(range.message, "[0, 6]"));
  CHECK(contains(range.fix, "llm.layers.5"));
  error_of({{{{0, 0, {run("llm", 3, 3)}}}}}, {1, 1});
  error_of({{{{0, 0, {}}}}}, {1, 1});
  error_of({{{}}}, {1, 1});
  error_of({}, {0, 1});
  error_of({}, {1, 1}, ModelGraph{});
}

TEST_CASE("a layer placed twice or not at all is named with its module's layers",
          "[scheduler][errors]") {
  const auto twice = error_of(
      {{{{0, 0, {all("vision"), all("audio"), run("llm", 0, 4)}}, {0, 0, {run("llm", 3, 6)}}}}},
      {1, 1});
  CHECK(twice.where == "parallel.pipelines[0].stages[1].llm");
  CHECK(contains(twice.message, "layer 3 (llm.layers.3) is placed twice"));
  const auto missing =
      error_of({{{{0, 0, {all("vision"), all("audio"), all("llm")}}},
                 {{0, 0, {all("vision"), all("audio"), run("llm", 0, 1), run("llm", 4, 5)}}}}},
               {1, 1});
  CHECK(missing.where == "parallel.pipelines[1]");
  CHECK(contains(missing.message, "layer 1-3, 5 of module llm"));
  CHECK(contains(missing.fix, "0 llm.layers.0, 1 llm.layers.1"));
}

TEST_CASE("stages that wait for each other are refused", "[scheduler][errors]") {
  // Stage 0 makes vision's first half and needs audio's, stage 1 the other way round.
  const auto circle = error_of({{{{0, 0, {run("vision", 0, 2), run("audio", 1, 3)}},
                                  {0, 0, {run("vision", 2, 4), run("audio", 0, 1)}},
                                  {0, 0, {all("llm")}}}}},
                               {1, 1});
  CHECK(contains(circle.message, "stages 0, 1"));
}

TEST_CASE("the problems of all pipelines are listed at once", "[scheduler][errors]") {
  const HandLayout layout{{{{0, 0, {run("llm", 0, 9)}}},
                           {{0, 0, {all("vision"), all("audio"), all("llm")}}},
                           {{0, 3, {all("llm")}}}}};
  const auto problems = layout_problems(vision_audio_llm(), layout, {1, 1});
  REQUIRE(problems.size() == 2);
  CHECK(contains(problems[0].where, "parallel.pipelines[0]"));
  CHECK(contains(problems[1].where, "parallel.pipelines[2].stages[0].device"));
  CHECK(problems[0].message == error_of(layout, {1, 1}).message);

  const HandLayout good{{{{0, 0, {all("vision"), all("audio"), all("llm")}}}}};
  CHECK(layout_problems(vision_audio_llm(), good, {1, 1}).empty());
  CHECK(layout_problems(vision_audio_llm(), good, {1, 2}).size() == 1);  // One device idles.
}

TEST_CASE("devices without a stage may be left out, and the others count on without them",
          "[scheduler]") {
  const HandLayout layout{{{{1, 1, {all("vision"), all("audio")}}, {0, 1, {all("llm")}}}}};
  const auto plan =
      place_by_hand(vision_audio_llm(), layout, {2, 2}, IdleDevices::left_out).value();
  CHECK((plan.devices == std::vector<DeviceSlot>{{NodeId{0}, 1}, {NodeId{1}, 1}}));
  CHECK(plan.devices[plan.stages.front().devices.front().index()].node == NodeId{1});
  CHECK(plan.devices[plan.stages.back().devices.front().index()].node == NodeId{0});
  CHECK(layout_problems(vision_audio_llm(), layout, {2, 2}, IdleDevices::left_out).empty());
}

TEST_CASE("a device without a stage is refused", "[scheduler][errors]") {
  const auto idle = error_of({{{{0, 0, {all("vision"), all("audio"), all("llm")}}}}}, {1, 2});
  CHECK(contains(idle.message, "device 1 of node 0"));
}

TEST_CASE("a device without a stage stands by where nodes may be lost", "[scheduler]") {
  const HandLayout layout{{{{0, 0, {all("vision"), all("audio"), all("llm")}}}}};
  // Refused as idle until it has something to keep.
  CHECK_FALSE(place_by_hand(vision_audio_llm(), layout, {2, 1}).ok());
  const auto plan =
      place_by_hand(vision_audio_llm(), layout, {2, 1}, IdleDevices::refused, {1, Dtype::fp32})
          .value();
  CHECK(plan.devices.size() == 2);
  CHECK(plan.standbys.size() == state_units(plan.model).size());
  for (const ParameterGroup& group : plan.groups)
    CHECK(group.holders == std::vector<DeviceId>{DeviceId{0}, DeviceId{1}});
  const auto kept = standby_runs(plan, DeviceId{1});
  REQUIRE(kept.runs.size() == 5);
  CHECK(kept.runs.back() == LayerRun{ModuleId{4}, {0, 6}});
  CHECK(kept.tied.empty());
  CHECK(standby_runs(plan, DeviceId{0}).runs.empty());
  // A third one has nothing to keep.
  const auto idle =
      place_by_hand(vision_audio_llm(), layout, {2, 2}, IdleDevices::refused, {1, Dtype::fp32});
  REQUIRE_FALSE(idle.ok());
  CHECK(contains(idle.error().message, "device 1 of node 0"));
}

TEST_CASE("devices that keep nothing are left out, others are found again", "[scheduler]") {
  const HandLayout layout{{{{1, 1, {all("vision"), all("audio"), all("llm")}}}}};
  const auto plan =
      place_by_hand(vision_audio_llm(), layout, {2, 2}, IdleDevices::left_out, {1, Dtype::fp32})
          .value();
  // Both devices of node 0 keep a part; the other one of node 1 would be no second node.
  CHECK((plan.devices == std::vector<DeviceSlot>{{NodeId{0}, 0}, {NodeId{0}, 1}, {NodeId{1}, 1}}));
  for (const Standby& standby : plan.standbys)
    CHECK(plan.devices[standby.device.index()].node == NodeId{0});
  for (const ParameterGroup& group : plan.groups) {
    CHECK(group.holders.front() == DeviceId{2});
    CHECK(group.standbys == 1);
  }
}

TEST_CASE("more losses than nodes are a problem of the layout", "[scheduler][errors]") {
  const HandLayout layout{{{{0, 0, {all("vision"), all("audio")}}, {1, 0, {all("llm")}}}}};
  const auto problems =
      layout_problems(vision_audio_llm(), layout, {2, 1}, IdleDevices::refused, {2, Dtype::fp32});
  REQUIRE(problems.size() == 1);
  CHECK(problems.front().where == "cluster.fault_tolerance");
  CHECK(contains(problems.front().fix, "cluster.fault_tolerance = 1"));
}

TEST_CASE("every layer is held once per replica, upstream stages first", "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const auto plan = testing::random_plan(random);
    std::size_t stages = 0;
    for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
      const ReplicaId id{r};
      const auto& modules = plan.module_groups[plan.at(id).group.index()].modules;
      std::size_t held = 0, layers = 0;
      for (const ModuleId module : modules) layers += plan.model.at(module).layers.size();
      for (const StageId stage : plan.at(id).stages) {
        CHECK(stage.index() == stages++);
        CHECK(plan.at(stage).replica == id);
        for (const auto& run : plan.at(stage).runs) {
          CHECK(plan.group_of(run.module) == plan.at(id).group);
          held += static_cast<std::size_t>(run.layers.size());
        }
      }
      CHECK(held == layers);
      for (const ModuleId module : modules)
        for (std::size_t l = 0; l < plan.model.at(module).layers.size(); ++l)
          CHECK(stage_with(plan, id, {module, static_cast<std::int32_t>(l)}).valid());
      CHECK(plan.is_llm(id) == (modules.front() == plan.model.llm()));
    }
    CHECK(stages == plan.stages.size());
    for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
      for (const ReplicaId replica : plan.pipelines[p].replicas)
        CHECK(plan.at(replica).pipeline == PipelineId{p});
      for (const auto& edge : pipeline_edges(plan, PipelineId{p})) CHECK(edge.from < edge.to);
    }
  }
}

TEST_CASE("each module group has its own number of replicas", "[scheduler]") {
  // Written in any order; the projectors go along with their encoders.
  const HandLayout layout{
      {},
      {{{"llm"}, {{0, 0, {all("llm")}}}},
       {{"audio"}, {{1, 0, {all("audio")}}}},
       {{"vision"}, {{2, 0, {run("vision", 0, 2)}}, {3, 0, {run("vision", 2, 4)}}}},
       {{"vision"}, {{4, 0, {all("vision")}}}}}};
  const auto made = place_by_hand(vision_audio_llm(), layout, {5, 1});
  REQUIRE(made.ok());
  const auto& plan = made.value();
  CHECK(shown(plan) ==
        std::vector<std::string>{"p0 d2 vision[0,2)", "p0 d3 vision[2,4) vision_projector[0,1)",
                                 "p0 d4 vision[0,4) vision_projector[0,1)",
                                 "p0 d1 audio[0,3) audio_projector[0,1)", "p0 d0 llm[0,6)"});
  REQUIRE(plan.module_groups.size() == 3);
  CHECK(plan.module_groups[0].name == "vision");
  CHECK(plan.module_groups[2].name == "llm");
  CHECK(plan.replicas.size() == 4);
  CHECK(plan.pipelines.size() == 1);
  CHECK(plan.is_first(ReplicaId{0}));
  CHECK_FALSE(plan.is_first(ReplicaId{1}));
}

TEST_CASE("replicas that make no whole model are refused with the fix", "[scheduler][errors]") {
  const HandStage vision{0, 0, {all("vision")}}, audio{0, 0, {all("audio")}},
      llm{0, 0, {all("llm")}};
  const auto refused = [](std::vector<HandReplica> replicas, const std::string& where,
                          const std::string& message) {
    const auto error = error_of({{}, std::move(replicas)}, {1, 1});
    INFO(error.where << ": " << error.message);
    CHECK(contains(error.where, where));
    CHECK(contains(error.message, message));
  };
  refused({{{"vision", "audio"}, {{0, 0, {all("vision"), all("audio")}}}}}, "parallel.replicas",
          "no replica holds llm");
  refused({{{"vision"}, {vision}}, {{"llm"}, {llm}}}, "parallel.replicas",
          "no replica holds audio");
  refused({{{"vision", "llm"}, {vision, llm}}}, "replicas[0].modules", "in one group");
  refused({{{"vision"}, {vision}}, {{"vision", "audio"}, {vision, audio}}, {{"llm"}, {llm}}},
          "replicas[1].modules", "also in the group of parallel.replicas[0]");
  refused({{{"vision", "audio"}, {vision, audio}}, {{"llm"}, {llm, vision}}},
          "replicas[1].stages[1].vision", "not of this replica's module group");
  refused({{{"vision", "audio"}, {vision}}, {{"llm"}, {llm}}}, "replicas[0]",
          "no stage of replica 0 has layer");
  refused({{{"vision_projector"}, {vision}},
           {{"vision"}, {vision}},
           {{"audio"}, {audio}},
           {{"llm"}, {llm}}},
          "replicas[0].modules", "projector");
}

}  // namespace
}  // namespace troupe::scheduler
