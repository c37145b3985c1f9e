#include "engine/iteration/plan_summary.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "scheduler/layout/place_by_hand.hpp"
#include "tests/engine/measured_events.hpp"
#include "tests/scheduler/example_models.hpp"
#include "tests/scheduler/two_layers.hpp"

namespace troupe::engine {
namespace {

using scheduler::place_by_hand;

TEST_CASE("a layout is told by pipelines, with nodes and layers", "[engine]") {
  const auto plan = place_by_hand(scheduler::testing::text_llm(4), {}, {2, 1}).value();
  const auto lines = layout_lines(plan);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "pipeline 0: node 0: llm 0-1 | node 1: llm 2-3");
}

TEST_CASE("who stands by for what is told, and what it takes", "[engine]") {
  auto model = scheduler::testing::text_llm(4);
  model.tied.push_back({"llm.embed", {{ModuleId{0}, 0}, {ModuleId{0}, 1}}, 640});
  const auto plan =
      place_by_hand(model, {}, {2, 1}, scheduler::IdleDevices::refused, {1, Dtype::fp32}).value();
  CHECK(layout_lines(plan).back() == "standby: node 0: llm 2-3 | node 1: llm 0-1, llm.embed");
  const auto lines = standby_lines(plan, Dtype::fp32);
  REQUIRE(lines.size() == 2);
  CHECK(lines[1].starts_with("standby holders keep 1 MB more"));  // 686 elements, rounded up.
  CHECK(standby_lines(place_by_hand(model, {}, {2, 1}).value(), Dtype::fp32).empty());
}

TEST_CASE("what of moments is in host memory is told", "[engine]") {
  auto model = scheduler::testing::text_llm(2);
  for (auto& layer : model.modules[0].layers) layer.parameter_elements = 1'000'000;
  model.modules[0].moments_in_host = true;
  // Two moments of 4 bytes each, of two layers.
  CHECK(host_text(place_by_hand(model, {}, {1, 1}).value(), Dtype::fp32) ==
        "moments in host memory: 16 MB of the fullest device, 8 MB of them on it at a time");
  model.modules[0].moments_in_host = false;
  CHECK(host_text(place_by_hand(model, {}, {1, 1}).value(), Dtype::fp32).empty());
}

TEST_CASE("what of parameters is in host memory while the llm computes is told", "[engine]") {
  auto model = scheduler::testing::two_layers();
  REQUIRE(model.modules[0].name == "vision");
  for (auto& layer : model.modules[0].layers) layer.parameter_elements = 1'000'000;
  const auto megabytes = std::to_string(4 * model.modules[0].layers.size());
  model.modules[0].parameters_in_host = true;
  const auto text = [&](int llm_node) {
    const HandLayout layout{{{{0, 0, {{"vision", {}}}}, {llm_node, 0, {{"llm", {}}}}}}};
    return host_text(place_by_hand(model, layout, {llm_node + 1, 1}).value(), Dtype::fp32);
  };
  CHECK(text(0) == "parameters in host memory while the llm computes: " + megabytes +
                       " MB of the fullest device");
  CHECK(text(1).empty());
}

TEST_CASE("devices that share the cores of a machine are told", "[engine]") {
  const auto plan = place_by_hand(scheduler::testing::text_llm(4), {}, {4, 1}).value();
  job::Cluster cluster;
  cluster.nodes = cluster.local_nodes = 4;
  CHECK(crowded_cores(plan, cluster, 4).empty());
  CHECK(crowded_cores(plan, cluster, 2).starts_with("4 operator threads share the 2 cores"));
  CHECK(crowded_cores(plan, cluster, 1).starts_with("4 operator threads share the 1 core of"));
  cluster.threads_per_device = 2;
  CHECK(crowded_cores(plan, cluster, 7).starts_with("8 operator threads share the 7 cores"));
  // The rest are on machines that this one knows nothing about.
  cluster.local_nodes = 1;
  CHECK(crowded_cores(plan, cluster, 2).empty());
  CHECK_FALSE(crowded_cores(plan, cluster, 1).empty());
  cluster.device = "cuda";
  CHECK(crowded_cores(plan, cluster, 1).empty());
}

Prediction promise(double step_ms, std::vector<double> stage_ms) {
  Prediction prediction;
  prediction.calibrated_step_ms = step_ms;
  prediction.profile_step_ms = step_ms / 2;
  prediction.calibrated_stage_ms = std::move(stage_ms);
  for (const double ms : prediction.calibrated_stage_ms)
    prediction.profile_stage_ms.push_back(ms + 1);
  return prediction;
}

TEST_CASE("stage times are means over predicted steps without the first", "[engine]") {
  const auto plan = place_by_hand(scheduler::testing::text_llm(4), {}, {2, 1}).value();
  StageTimes times;
  CHECK(times.lines(plan).empty());
  const std::vector<observe::TraceEvent> warm_up{slice(ActionKind::forward, 0, 900)};
  times.add({}, warm_up, 1000);                     // Not predicted.
  times.add(promise(30, {10, 20}), warm_up, 1000);  // Warms up.
  CHECK(times.lines(plan).empty());
  // Waiting for a message is no work of the stage; the update is.
  times.add(promise(40, {10, 20}),
            std::vector{slice(ActionKind::forward, 0, 5), slice(ActionKind::backward, 0, 7),
                        slice(ActionKind::optimizer_step, 0, 4), slice(ActionKind::receive, 1, 500),
                        slice(ActionKind::forward, 1, 10)},
            50);
  times.add(promise(40, {20, 20}),
            std::vector{slice(ActionKind::forward, 0, 8), slice(ActionKind::forward, 1, 30)}, 30);
  const auto lines = times.lines(plan);
  REQUIRE(lines.size() == 4);
  CHECK(
      lines[0] ==
      "times of a step, mean of 2: by the profile, by speeds measured in this run, and measured:");
  CHECK(lines[1] ==
        "  profile     16.0 ms   +33 %  calibrated     15.0 ms   +25 %  measured     12.0 ms  "
        "stage 0 on node 0: llm 0-1");
  CHECK(lines[2] ==
        "  profile     21.0 ms    +5 %  calibrated     20.0 ms    +0 %  measured     20.0 ms  "
        "stage 1 on node 1: llm 2-3");
  CHECK(
      lines[3] ==
      "  profile     20.0 ms   -50 %  calibrated     40.0 ms    +0 %  measured     40.0 ms  step");
}

TEST_CASE("checks of plans are told with their share of a step", "[engine]") {
  const auto plan = place_by_hand(scheduler::testing::text_llm(1), {}, {1, 1}).value();
  StageTimes times;
  for (const double check_ms : {0.5, 0.0, 1.5}) times.add_check(check_ms);
  CHECK(times.lines(plan).empty());
  for (int i = 0; i < 2; ++i) times.add(promise(50, {50}), {}, 50);
  CHECK(times.lines(plan).back() ==
        "plans proven sound: 2 of 3, 1.00 ms each, 2.00 % of a step; of the others none is known "
        "to be unsound: a check would have taken more than 2 % of their steps");
}

TEST_CASE("devices without a stage need no core", "[engine]") {
  const auto plan = place_by_hand(scheduler::testing::text_llm(1), {}, {1, 1}).value();
  job::Cluster cluster;
  cluster.nodes = cluster.local_nodes = 3;
  CHECK(crowded_cores(plan, cluster, 1).empty());
}

}  // namespace
}  // namespace troupe::engine
