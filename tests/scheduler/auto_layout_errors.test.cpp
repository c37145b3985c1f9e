#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <set>

#include "scheduler/layout/auto_layout.hpp"
#include "tests/scheduler/example_models.hpp"
#include "tests/scheduler/layout_requests.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::FourLayers;
using testing::model_of;
using testing::sample;
using testing::text_llm;
using testing::vision_audio_llm;

/// What the planner says of so many encoders of so many layers each, on nodes of a device.
Result<AutoLayout> plan_encoders(int encoders, int layers, std::int32_t nodes) {
  ModelGraph graph;
  for (int e = 0; e < encoders; ++e) {
    const std::string name = "encoder" + std::to_string(e);
    graph.modules.push_back({name,
                             ModuleKind::encoder,
                             false,
                             {ModuleId{static_cast<std::size_t>(encoders)}},
                             testing::layers(name + ".layers", layers),
                             4,
                             4});
  }
  graph.modules.push_back(
      {"llm", ModuleKind::llm, false, {}, testing::layers("llm.layers", layers), 4, 4});
  const CostModel model = model_of(graph, {1});
  AutoLayoutRequest request;
  request.model = &model;
  request.samples = {testing::text(4), testing::text(4)};
  request.cluster = {nodes, 1};
  request.global_batch = request.microbatches = 2;
  return auto_layout(request);
}

TEST_CASE("what cannot be is refused with the nearest choice", "[scheduler][errors]") {
  FourLayers four;
  SECTION("contradictory pipelines") {
    // Only one module here: the contradiction is with the cluster.
    four.request.pins["llm"].dp = 3;
    CHECK(four.refuse().code == Errc::infeasible);
    CHECK_THAT(four.refuse().fix, ContainsSubstring("dp = 2"));
  }
  SECTION("stages that the devices cannot have") {
    four.request.pins["llm"] = {{}, {}, 3, {}};
    CHECK_THAT(four.refuse().message, ContainsSubstring("parallel.llm.pp = 3"));
    CHECK_THAT(four.refuse().fix, ContainsSubstring("parallel.llm.pp = "));
  }
  SECTION("more stages than layers") {
    four.request.pins["llm"].pp = 9;
    CHECK_THAT(four.refuse().fix, ContainsSubstring("pp = 4"));
  }
  SECTION("tensor parallel stages that nothing runs") {
    four.request.pins["llm"].tp = 2;
    CHECK(four.refuse().code == Errc::infeasible);
    four.request.planned_only = true;
    CHECK_THAT(four.refuse().message, ContainsSubstring("leaves the node"));
    four.request.cluster = {1, 4};
    CHECK(four.refuse().code == Errc::not_found);
  }
  SECTION("an unknown module") {
    four.request.pins["lm"].dp = 1;
    CHECK_THAT(four.refuse().fix, ContainsSubstring("parallel.llm"));
  }
  SECTION("so many encoders that their places cannot all be tried") {
    CHECK(plan_encoders(4, 3, 8).ok());
    const auto refused = plan_encoders(6, 13, 64);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == Errc::infeasible);
    CHECK_THAT(refused.error().message, ContainsSubstring("6 encoders on 64 devices"));
    CHECK_THAT(refused.error().fix, ContainsSubstring("by hand"));
  }
  SECTION("a layer larger than a device") {
    four.request.device_memory = Bytes{100};
    CHECK_THAT(four.refuse().message, ContainsSubstring("layer llm.layers.3 alone needs"));
  }
  SECTION("a model larger than the cluster") {
    four.request.device_memory = Bytes{300};
    CHECK_THAT(four.refuse().message, ContainsSubstring("no layout fits"));
  }
  SECTION("more devices than layers and samples") {
    four.request.cluster = {9, 1};
    CHECK_THAT(four.refuse().fix, ContainsSubstring("nearest choice: 8 devices"));
    four.request.planned_only = true;
    // Two whole pipelines of one sample each are as fast as any longer ones.
    CHECK(four.choose().reasons.back().choice == "2 of 9 devices");
    CHECK_THAT(four.choose().reasons.back().why, ContainsSubstring("no more than with fewer"));
  }
  SECTION("fault tolerance beyond the nodes") {
    four.request.fault_tolerance = 2;
    CHECK_THAT(four.refuse().fix, ContainsSubstring("cluster.fault_tolerance = 1"));
  }
  SECTION("no samples") {
    four.request.samples.clear();
    CHECK(four.refuse().code == Errc::invalid_argument);
  }
  SECTION("an unknown schedule") {
    four.request.schedule = "1f2b";
    CHECK_THAT(four.refuse().fix, ContainsSubstring("1f1b"));
  }
}

TEST_CASE("numbers of replicas that cannot be are refused with the fix", "[scheduler][errors]") {
  const auto model = model_of(vision_audio_llm(), {1});
  AutoLayoutRequest request;
  request.model = &model;
  request.samples = {sample(1, 1)};
  request.cluster = {6, 1};
  request.global_batch = 6;
  const auto refused = [&] {
    const auto made = auto_layout(request);
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().code == Errc::infeasible);
    return made.error();
  };
  SECTION("an encoder and its projector") {
    request.pins["vision"].dp = 2;
    request.pins["vision_projector"].dp = 3;
    CHECK_THAT(refused().message, ContainsSubstring("have replicas together"));
    CHECK(refused().where == "parallel.vision_projector.dp");
    CHECK(refused().fix == "nearest choice: parallel.vision_projector.dp = 2");
  }
  SECTION("more replicas than devices") {
    request.pins["vision"].dp = 4;
    request.pins["llm"].dp = 3;
    CHECK_THAT(refused().message, ContainsSubstring("take at least 7 devices, there are 6"));
    CHECK(refused().where == "parallel.vision.dp");
    CHECK_THAT(refused().fix, ContainsSubstring("7 devices, or parallel.vision.dp = 3"));
  }
  SECTION("more replicas of two encoders than devices") {
    request.pins["vision"].dp = 3;
    request.pins["audio"].dp = 2;
    request.pins["llm"].dp = 2;
    CHECK_THAT(refused().message, ContainsSubstring("take at least 7 devices"));
  }
  SECTION("more replicas than samples") {
    request.global_batch = 3;
    request.pins["vision"].dp = 4;
    CHECK_THAT(refused().message, ContainsSubstring("4 replicas of vision need as many samples"));
    CHECK_THAT(refused().fix, ContainsSubstring("dp = 3"));
  }
  SECTION("devices that would be left over") {
    // Vision and audio with their projectors have 9 layers, the llm 6.
    request.cluster = {17, 1};
    request.global_batch = 17;
    request.pins["vision"].dp = request.pins["audio"].dp = 1;
    request.pins["llm"].dp = 17;
    CHECK_THAT(refused().message, ContainsSubstring("take at least 18 devices"));
    request.cluster = {40, 1};
    request.global_batch = 40;
    request.pins["llm"].dp = 2;
    CHECK_THAT(refused().message,
               ContainsSubstring("40 devices cannot be shared out to parallel.vision.dp = 1, "
                                 "parallel.audio.dp = 1 and parallel.llm.dp = 2"));
  }
  SECTION("memory") {
    request.pins["vision"].dp = 3;
    request.pins["llm"].dp = 2;
    request.device_memory = Bytes{300};
    CHECK_THAT(refused().message, ContainsSubstring("the fullest device needs at least 1 MB"));
    CHECK(refused().where == "memory");
  }
  SECTION("one number for all although numbers differ") {
    request.one_number = true;
    request.pins["vision"].dp = 3;
    request.pins["llm"].dp = 2;
    CHECK_THAT(refused().message, ContainsSubstring("differ"));
  }
}

/// vision, audio, their projectors and an llm, on machines that are only planned for.
struct Planned {
  CostModel model = model_of(vision_audio_llm(), {1}, {{}, {2, 1}, {4, 1}, {8, 1}, {1, 2}});
  AutoLayoutRequest request;

  explicit Planned(ClusterShape cluster) {
    request.model = &model;
    request.samples = {sample(1, 1)};
    request.cluster = cluster;
    request.global_batch = request.microbatches = 4;
    request.planned_only = true;
  }
  Error refuse() const {
    const auto made = auto_layout(request);
    REQUIRE_FALSE(made.ok());
    return made.error();
  }
};

TEST_CASE("degrees of encoders may not exclude each other", "[scheduler][errors]") {
  Planned planned({1, 8});
  planned.request.pins["vision"].tp = 2;
  planned.request.pins["audio"].tp = 4;
  auto error = planned.refuse();
  CHECK(error.code == Errc::infeasible);
  CHECK_THAT(error.message, ContainsSubstring("parallel.audio.tp = 4 and parallel.vision.tp = 2"));
  CHECK_THAT(error.fix, ContainsSubstring("nearest choice: parallel.vision.tp = 4"));

  // Each has a profile, both together have none: there is no tp 2 with cp 2.
  planned.request.pins["audio"] = {{}, 2, {}, {}};
  error = planned.refuse();
  CHECK_THAT(error.message, ContainsSubstring("parallel.vision.tp = 2 and parallel.audio.cp = 2"));
  CHECK_THAT(error.fix, ContainsSubstring("tp 2 cp 1"));
}

TEST_CASE("stages wider than what is left say how many devices it takes", "[scheduler][errors]") {
  // One device for the encoders and eight for the llm: nine, and 18 for two pipelines.
  Planned planned({1, 8});
  planned.request.pins["vision"].tp = 1;
  planned.request.pins["llm"].tp = 8;
  auto error = planned.refuse();
  CHECK(error.code == Errc::infeasible);
  CHECK_THAT(error.message, ContainsSubstring("at least 9 devices, there are 8"));
  CHECK_THAT(error.message, ContainsSubstring("encoders have tp 1 cp 1, those of the llm tp 8"));
  CHECK_THAT(error.fix, ContainsSubstring("9 devices"));
  planned.request.cluster = {2, 8};
  planned.request.pins["llm"].dp = 2;
  error = planned.refuse();
  CHECK_THAT(error.message, ContainsSubstring("2 pipelines take at least 18 devices"));
  CHECK_THAT(error.fix, ContainsSubstring("nearest choice: dp = 1"));
  // More pipelines than stages fit: three of two stages of eight devices.
  planned.request.pins = {};
  planned.request.pins["llm"].dp = 3;
  planned.request.pins["llm"].tp = planned.request.pins["vision"].tp = 8;
  error = planned.refuse();
  CHECK_THAT(error.message, ContainsSubstring("3 pipelines take at least 24 devices"));
  CHECK_THAT(error.fix, ContainsSubstring("nearest choice: dp = 2"));
}

TEST_CASE("stages of different widths leave devices idle rather than find none", "[scheduler]") {
  const auto widths = [](const AutoLayout& made) {
    std::vector<std::int32_t> list;
    for (const Stage& stage : made.plan.stages)
      list.push_back(static_cast<std::int32_t>(stage.devices.size()));
    return list;
  };
  Planned planned({1, 3});
  planned.request.pins["llm"].tp = 2;
  planned.request.pins["vision"].tp = 1;
  CHECK(widths(auto_layout(planned.request).value()) == std::vector<std::int32_t>{1, 2});
  planned.request.cluster = {2, 8};
  planned.request.pins["llm"].tp = 8;
  const auto made = auto_layout(planned.request).value();
  CHECK(widths(made).back() == 8);
  for (const DeviceSlot& slot : made.plan.devices) CHECK(slot.local_index < 8);
}

TEST_CASE("nodes that stages do not divide keep a device idle", "[scheduler]") {
  const auto model = model_of(text_llm(4), {1}, {{}, {2, 1}});
  FourLayers four;
  four.request.model = &model;
  four.request.cluster = {2, 3};
  four.request.planned_only = true;
  four.request.pins["llm"].tp = 2;
  for (const Stage& stage : four.choose().plan.stages) CHECK(stage.devices.size() == 2);
  four.request.pins["llm"].pp = 3;  // Two nodes have room for two stages.
  CHECK_THAT(four.refuse().message, ContainsSubstring("has parallel.llm.pp = 3"));
  CHECK_THAT(four.refuse().fix, ContainsSubstring("parallel.llm.pp = "));
}

TEST_CASE("everything is on as many nodes as losses ask for, whatever the pipelines",
          "[scheduler][property]") {
  int standbys = 0, idle = 0;
  for (const std::int32_t tolerance : {0, 1, 2})
    for (const bool one : {true, false}) {
      // Four nodes of four devices; llm stages of two devices, encoders of one.
      Planned planned({4, 4});
      planned.request.pins["llm"].tp = 2;
      planned.request.pins["vision"].tp = 1;
      if (one) planned.request.pins["llm"].dp = 1;
      planned.request.fault_tolerance = tolerance;
      const auto made = auto_layout(planned.request).value();
      CAPTURE(tolerance, one, made.plan.pipelines.size());
      for (const auto& holders : unit_holders(made.plan)) {
        std::set<NodeId> nodes;
        for (const DeviceId device : holders) nodes.insert(made.plan.devices[device.index()].node);
        CHECK(nodes.size() > static_cast<std::size_t>(tolerance));
      }
      standbys += static_cast<int>(made.plan.standbys.size());
      std::set<DeviceId> working;
      for (const Stage& stage : made.plan.stages)
        working.insert(stage.devices.begin(), stage.devices.end());
      idle += static_cast<int>(made.plan.devices.size() - working.size());
      if (tolerance == 0) CHECK(made.plan.standbys.empty());
    }
  CHECK(standbys > 0);
  CHECK(idle > 0);
}

TEST_CASE("standby state counts as memory of a layout", "[scheduler]") {
  // One pipeline of two stages on two nodes: each keeps the other's half as well.
  FourLayers four;
  four.request.cluster = {2, 1};
  four.request.pins["llm"].dp = 1;
  const auto alone = four.choose().predicted.peak_memory_bytes;
  four.request.fault_tolerance = 1;
  const auto safe = four.choose();
  REQUIRE(safe.plan.pipelines.size() == 1);
  for (std::size_t d = 0; d < 2; ++d) CHECK(safe.predicted.peak_memory_bytes[d] > alone[d] + 100);
  const auto most =
      std::max(safe.predicted.peak_memory_bytes[0], safe.predicted.peak_memory_bytes[1]);
  four.request.device_memory = Bytes{static_cast<std::int64_t>(most) - 50};
  CHECK(four.refuse().code == Errc::infeasible);
}

TEST_CASE("a model of too many layers is refused at once", "[scheduler][errors]") {
  const CostModel model = model_of(text_llm(kAutoLayoutLayersMax + 1), {1});
  FourLayers four;
  four.request.model = &model;
  const auto refused = auto_layout(four.request);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  CHECK_THAT(refused.error().fix, ContainsSubstring("nearest choice: 4096 layers in llm"));
}

}  // namespace
}  // namespace troupe::scheduler
