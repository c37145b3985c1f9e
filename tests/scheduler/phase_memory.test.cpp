#include "scheduler/layout/phase_memory.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::scheduler {
namespace {

PhaseStage encoder(double state, double microbatch) {
  PhaseStage stage;
  stage.state_bytes = state;
  stage.demand.microbatch_bytes = microbatch;
  return stage;
}

PhaseStage llm(double state, double microbatch, double depth = 1) {
  PhaseStage stage = encoder(state, microbatch);
  stage.demand.is_llm = true;
  stage.demand.depth = depth;
  return stage;
}

TEST_CASE("a window is as wide as the narrowest encoder has room for", "[scheduler]") {
  // Device 0: 60 bytes of state; beside one of 8 of the llm 32 are left: six microbatches of 5.
  // Device 1: 80 of state and an encoder alone: six microbatches of 3.
  const auto held_with = [](double microbatches) {
    PhaseMemory held(2, 100);
    held.add(0, encoder(20, 5), microbatches);
    held.add(0, llm(40, 8), 12);
    held.add(1, encoder(80, 3), microbatches);
    return held;
  };
  CHECK(held_with(6).least_bytes() == 83);
  CHECK(held_with(6).pace().windows == 1);
  CHECK(held_with(7).pace().windows == 2);
  CHECK(held_with(18).pace().windows == 3);
  auto held = held_with(12);
  held.add(1, llm(14, 1), 12);  // 6 are left, one for the llm: one microbatch.
  CHECK(held.least_bytes() == 98);
  CHECK(held.pace().windows == 12);
  // With three microbatches of both stages in flight on device 1.
  CHECK(held.wanted_bytes() == 98);
  held.add(1, llm(0, 1, 3), 12);
  CHECK(held.wanted_bytes() == 103);
  CHECK(held.least_bytes() == 99);
}

TEST_CASE("an llm is held back as far as its room is short of what it has in flight",
          "[scheduler]") {
  const auto held_with = [](double microbatches) {
    PhaseMemory held(2, 100);
    held.add(0, encoder(20, 5), microbatches);
    held.add(0, llm(40, 8, 6), 12);
    return held;
  };
  // 40 are left: three of six microbatches in flight beside three of the encoder's, whose six make
  // two windows; four would leave room for one, six windows.
  auto held = held_with(6);
  CHECK(held.pace().held_back == 2);
  CHECK(held.pace().windows == 2);
  // Of 24 the same would make eight windows; beside two in flight four fit, six windows.
  CHECK(held_with(24).pace().held_back == 3);
  CHECK(held_with(24).pace().windows == 6);
  held.add(1, llm(60, 8, 5), 12);  // 40 are five.
  CHECK(held.pace().held_back == 2);
  held.add(1, llm(24, 8, 5), 12);  // 16 are one of each.
  CHECK(held.pace().held_back == 5);
}

TEST_CASE("what is in host memory has no room beside the llm", "[scheduler]") {
  PhaseStage away = encoder(20, 50);
  away.demand.offloaded_bytes = 45;
  const auto held_with = [&](double memory) {
    PhaseMemory held(1, memory);
    held.add(0, away, 4);
    held.add(0, llm(30, 40), 4);
    return held;
  };
  // 50 of state, 5 that stay, and in turn 45 or the llm's 40.
  CHECK(held_with(150).least_bytes() == 100);
  // With 40 beside them, 45 of one microbatch: 15 are for what stays of three.
  CHECK(held_with(150).wanted_bytes() == 50 + 45 + 5 + 40);
  CHECK(held_with(150).pace().windows == 2);
  CHECK(held_with(155).pace().windows == 1);
  // Of two encoders on a device one computes at a time.
  auto two = held_with(150);
  two.add(0, away, 4);
  CHECK(two.least_bytes() == 70 + 2 * 5 + 45);
  // While the llm computes 15 bytes of parameters are gone: ten of its own take no more than is
  // there without it, 60 take 45.
  PhaseStage leaves = encoder(20, 50);
  leaves.leaving_bytes = 15;
  const auto beside = [&](double llm_bytes) {
    PhaseMemory held(1, 200);
    held.add(0, leaves, 4);
    held.add(0, llm(30, llm_bytes), 4);
    return held;
  };
  CHECK(beside(10).least_bytes() == 50 + 50);
  CHECK(beside(60).least_bytes() == 50 + 50 + 60 - 15);
  CHECK(beside(60).wanted_bytes() == 50 + 50 + 60 - 15);
  // 150 of room, 165 with what leaves: beside 60 two microbatches of 50, beside 80 one.
  CHECK(beside(60).pace().windows == 2);
  CHECK(beside(80).pace().windows == 4);
}

TEST_CASE("rows wait also where the llm has a device for itself", "[scheduler]") {
  // Device 0: 80 bytes are sixteen microbatches of vision. Device 1: one of the llm, four bytes
  // without its rows, leaves 56 of 60, fourteen times the rows that come for one.
  auto stage = llm(40, 8);
  stage.demand.rows = {4, 4, true};
  const auto held_with = [&](double microbatches, double encoded) {
    PhaseMemory held(2, 100);
    held.add(0, encoder(20, 5), microbatches);
    held.add(1, stage, microbatches, encoded);
    return held;
  };
  CHECK(held_with(14, 14).pace().windows == 1);
  CHECK(held_with(15, 15).pace().windows == 2);
  CHECK(held_with(15, 0).pace().windows == 1);
  CHECK(held_with(15, 15).wanted_bytes() == 40 + 4 + 4);
  // Nothing goes back: 48 for twelve beside three in flight, or 52 for thirteen beside two.
  stage.demand.rows.go_back = false;
  stage.demand.depth = 3;
  CHECK(held_with(12, 12).pace().held_back == 1);
  CHECK(held_with(13, 13).pace().held_back == 1.5);
  CHECK(held_with(13, 13).pace().windows == 1);
  CHECK(held_with(13, 13).wanted_bytes() == 40 + 52 + 3 * 4);
}

TEST_CASE("memory without a limit holds all in one window", "[scheduler]") {
  PhaseMemory held(1, 0);
  held.add(0, encoder(1e12, 1e12), 1000);
  held.add(0, llm(1e12, 1e12, 8), 1000);
  CHECK(held.pace().windows == 1);
  CHECK(held.pace().held_back == 1);
  PhaseMemory none(1, 10);
  none.add(0, llm(20, 5), 1000);  // No encoder: nothing to go over in windows.
  CHECK(none.pace().windows == 1);
}

TEST_CASE("segments of a track are stages of either side, with the rows that they get",
          "[scheduler]") {
  // vision of two layers before an llm of two, cut behind the first and the third.
  const ModuleId vision{0}, last{1};
  LayerWeights weights;
  weights.layers = {{vision, 0}, {vision, 1}, {last, 0}, {last, 1}};
  weights.state_bytes = {100, 101, 102, 103};
  weights.activation_bytes = {1, 2, 3, 4};
  weights.arriving_bytes = {0, 10, 0, 20};
  weights.crossing_bytes = {{}, {5, 6}, {7, 8, true}, {}};
  const auto stages = phase_stages({{0, 1, 2, 3}, 0, {0, 1, 3, 4}}, weights, last);
  REQUIRE(stages.size() == 4);
  const std::vector<std::int32_t> segments{0, 1, 1, 2};
  const std::vector<double> state{100, 101, 102, 103}, kept{1, 12, 11, 24}, depths{3, 2, 2, 1};
  for (std::size_t s = 0; s < 4; ++s) {
    INFO("stage " << s);
    CHECK(stages[s].segment == segments[s]);
    CHECK(stages[s].state_bytes == state[s]);
    CHECK(stages[s].demand.is_llm == (s >= 2));
    CHECK(stages[s].demand.microbatch_bytes == kept[s]);
    CHECK(stages[s].demand.depth == depths[s]);
    CHECK(stages[s].demand.rows.most == (s == 1 ? 6 : s == 2 ? 8 : 0));
    CHECK(stages[s].demand.rows.least == (s == 1 ? 5 : s == 2 ? 7 : 0));
    CHECK(stages[s].demand.rows.go_back == (s == 2));
  }
  for (const PhaseStage& stage : stages) {
    CHECK(stage.demand.offloaded_bytes == 0);
    CHECK(stage.leaving_bytes == 0);
  }
  // Inside a stage nothing comes from others.
  const auto one = phase_stages({{2, 3}, 0, {0, 2}}, weights, last);
  REQUIRE(one.size() == 1);
  CHECK(one[0].demand.microbatch_bytes == 3 + 8 + 4);
}

TEST_CASE("outputs of runs stay of what is offloaded", "[scheduler]") {
  // vision of two layers and a projector before an llm of one.
  const ModuleId vision{0}, projector{1}, last{2};
  LayerWeights weights;
  weights.layers = {{vision, 0}, {vision, 1}, {projector, 0}, {last, 0}};
  weights.state_bytes = {100, 101, 102, 103};
  weights.activation_bytes = {10, 20, 30, 40};
  weights.arriving_bytes = {0, 0, 0, 0};
  weights.crossing_bytes.resize(4);
  weights.staying_bytes = {4, 5, 6, 7};
  weights.leaving_bytes = {50, 51, 52, 0};
  const auto all = phase_stages({{0, 1, 2, 3}, 0, {0, 4}}, weights, last);
  REQUIRE(all.size() == 2);
  CHECK(all[0].demand.microbatch_bytes == 60);
  CHECK(all[0].demand.offloaded_bytes == 60 - 5 - 6);
  CHECK(all[0].leaving_bytes == 153);
  CHECK(all[1].demand.offloaded_bytes == 0);
  CHECK(all[1].leaving_bytes == 0);
  const auto cut = phase_stages({{0, 1, 2}, 0, {0, 1, 3}}, weights, last);
  REQUIRE(cut.size() == 2);
  CHECK(cut[0].demand.offloaded_bytes == 10 - 4);
  CHECK(cut[1].demand.offloaded_bytes == 50 - 5 - 6);
  weights.staying_bytes[0] = 11;  // Nothing is left to be offloaded.
  CHECK(phase_stages({{0}, 0, {0, 1}}, weights, last)[0].demand.offloaded_bytes == 0);
}

}  // namespace
}  // namespace troupe::scheduler
