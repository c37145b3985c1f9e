// What commands say of an exchange.

#include "tests/torch_catch.hpp"

#include "app/exchange_text.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"
#include "scheduler/layout/place_by_hand.hpp"

namespace troupe::app {
namespace {

/// Two replicas each of vision and the llm, and some of audio.
ParallelPlan plan_of(int audios) {
  ModelGraph model;
  model.modules = {{"vision", ModuleKind::encoder, false, {ModuleId{2}}, {{"vision.0", 1}}, 1, 1},
                   {"audio", ModuleKind::encoder, false, {ModuleId{2}}, {{"audio.0", 1}}, 1, 1},
                   {"llm", ModuleKind::llm, false, {}, {{"llm.0", 1}}, 1, 1}};
  std::vector<std::string> names{"vision", "vision"};
  for (int audio = 0; audio < audios; ++audio) names.emplace_back("audio");
  for (int llm = 0; llm < 2; ++llm) names.emplace_back("llm");
  HandLayout layout;
  std::int32_t node = 0;
  for (const std::string& name : names)
    layout.replicas.push_back({{name}, {{node++, 0, {{name, {}}}}}});
  return scheduler::place_by_hand(model, layout, {node, 1}).value();
}

/// A step of which these phases are exchanged.
engine::Prediction exchanged(bool vision, bool audio) {
  engine::Prediction step;
  step.exchanged = true;
  step.exchanged_phases = {vision, audio, false};
  return step;
}

/// One of vision alone, as audio has no room.
engine::Prediction without_room() {
  auto step = exchanged(true, false);
  step.exchange_refused = Error{Errc::infeasible, "replica 3 of audio has no room",
                                "cluster.device_memory_gib", "raise it"};
  step.refused_phases.emplace(1, *step.exchange_refused);
  return step;
}

std::string said(const std::vector<engine::Prediction>& steps, int audios = 2,
                 const std::string& asked = "per-phase") {
  engine::ExchangeCount count;
  for (const auto& step : steps) count.add(step);
  const std::string text = exchange_text(plan_of(audios), asked, count);
  const std::string head = "balancer.exchange = \"" + asked + "\": ";
  return text.starts_with(head) ? text.substr(head.size()) : "without its head: " + text;
}

TEST_CASE("of one step it is said which phases are exchanged, and why others are not", "[app]") {
  CHECK(said({exchanged(true, true)}) == "exchanged");
  CHECK(said({without_room()}) ==
        "vision is exchanged; audio is not exchanged: replica 3 of audio has no room; "
        "cluster.device_memory_gib: raise it");
  CHECK(said({exchanged(true, false)}) ==
        "vision is exchanged; audio is not exchanged: it would be no more even");
  CHECK(said({exchanged(false, false)}) ==
        "vision is not exchanged: it would be no more even; "
        "audio is not exchanged: it would be no more even");
  // One replica has nobody to share with.
  CHECK(said({exchanged(true, false)}, 1) == "exchanged");
}

TEST_CASE("of a step without an exchange it is said why", "[app]") {
  CHECK(said({engine::Prediction()}) == "not exchanged; no shorter step with it");
  engine::Prediction refused;
  refused.exchange_refused = Error{Errc::infeasible, "stage 0 needs 2", "max_in_flight", "allow 2"};
  CHECK(said({refused}) == "not exchanged; stage 0 needs 2; max_in_flight: allow 2");
  CHECK(said({refused}, 2, "off") == "nothing is exchanged");
}

TEST_CASE("of several steps it is said how often each phase is exchanged", "[app]") {
  const auto all = exchanged(true, true);
  CHECK(said({all, all}) == "exchanged in 2 of 2 steps");
  CHECK(said({all, without_room(), exchanged(true, false)}) ==
        "exchanged in 3 of 3 steps: vision in all of these; audio in 1 of these, in 1 it would be "
        "no more even, in 1 not: replica 3 of audio has no room; "
        "cluster.device_memory_gib: raise it");
  CHECK(said({all, engine::Prediction()}) ==
        "exchanged in 1 of 2 steps; in the others no shorter step with it");
  CHECK(said({engine::Prediction(), engine::Prediction()}) ==
        "exchanged in 0 of 2 steps; no shorter step with it");
}

TEST_CASE("who counts exchanges tells a step without one from a phase without one", "[app]") {
  engine::ExchangeCount count;
  count.add(without_room());
  CHECK(count.exchanged == 1);
  CHECK(count.refused);
  CHECK_FALSE(count.prevented);
  engine::Prediction refused;
  refused.exchange_refused = Error{Errc::infeasible, "stage 0 needs 2", "max_in_flight", "allow 2"};
  count.add(refused);
  CHECK(count.steps == 2);
  CHECK(count.exchanged == 1);
  CHECK(count.refused->where == "cluster.device_memory_gib");
  REQUIRE(count.prevented);
  CHECK(count.prevented->where == "max_in_flight");
}

}  // namespace
}  // namespace troupe::app
