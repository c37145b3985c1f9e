#include "engine/iteration/stated_costs.hpp"

#include <catch2/catch_approx.hpp>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/execution/stage_kinds.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "models/family/registry.hpp"
#include "runtime/vocabulary/user_code.hpp"
#include "scheduler/simulate/predicted_costs.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/torch_catch.hpp"

// What is stated stays for the rest of the process: each case has families of its own.

namespace troupe::engine {
namespace {

using scheduler::PartCost;
using scheduler::Profile;
using scheduler::ProfilePoint;

/// Runs forward again in its backward, and keeps nothing in between.
LayerCosts run_again(const LayerCosts& own, const CostedRows&) {
  return {own.forward_ms, own.forward_ms + own.input_gradient_ms, own.weight_gradient_ms, 0};
}

ModelGraph eyes_and_llm() {
  ModelGraph graph;
  graph.modules = {
      {"eyes", ModuleKind::encoder, false, {ModuleId{1}}, {{"eyes.0", 5}, {"eyes.1", 5}}, 32, 32},
      {"llm", ModuleKind::llm, false, {}, {{"llm.0", 5}}, 32, 32}};
  return graph;
}

std::vector<ModuleConfig> modules_of(const std::string& eyes) {
  return {{"eyes", ModuleKind::encoder, eyes, "llm", false, {}, 0.02, {}},
          {"llm", ModuleKind::llm, "llama", "", false, {}, 0.02, {}}};
}

/// A block with attention and a layer without, of the eyes; one layer of the llm.
Profile profile_of_eyes() {
  const auto kind = [](const std::string& name, PartCost attention) {
    return scheduler::LayerProfile{name,
                                   {},
                                   scheduler::CostOrigin::measured,
                                   Bytes{20},
                                   {ProfilePoint{16, {1, 2, 3, 6400}, attention}}};
  };
  return {"test",
          {{"eyes.0", "eyes.block"}, {"eyes.1", "eyes.merger"}, {"llm.0", "llm.block"}},
          {kind("eyes.block", {4, 5, 0, 1600}), kind("eyes.merger", {}),
           kind("llm.block", {4, 5, 0, 1600})}};
}

std::string fault_of(const std::function<void()>& ask) {
  try {
    ask();
  } catch (const UserFault& fault) {
    return fault.what();
  }
  return "none";
}

TEST_CASE("a kind of stages states costs of its families' layers alone", "[engine]") {
  const Profile plain = profile_of_eyes();
  CHECK(with_stated_costs(eyes_and_llm(), modules_of("dear-eyes"), plain) == plain);
  std::vector<std::string> asked;
  state_costs({"dear", {"dear-ears", "dear-eyes"}, [&](const LayerCosts& own, const CostedRows& x) {
                 asked.push_back(x.module.family + " " + x.layer + " " + std::to_string(x.rows) +
                                 (x.is_attention ? " attention" : ""));
                 return run_again(own, x);
               }});
  const Profile stated = with_stated_costs(eyes_and_llm(), modules_of("dear-eyes"), plain);
  CHECK(stated.profiles[0].points[0] == ProfilePoint{16, {1, 3, 3, 0}, {4, 9, 0, 0}});
  CHECK(stated.profiles[1].points[0] == ProfilePoint{16, {1, 3, 3, 0}, {}});
  CHECK(stated.profiles[2] == plain.profiles[2]);
  CHECK(asked == std::vector<std::string>{"dear-eyes eyes.block 16",
                                          "dear-eyes eyes.block 16 attention",
                                          "dear-eyes eyes.merger 16"});
  CHECK(with_stated_costs(eyes_and_llm(), modules_of("other-eyes"), plain) == plain);
}

TEST_CASE("costs that no plan can be made of are told by the kind's name", "[engine][errors]") {
  const auto said = [](const std::string& name, const CostsOfKind& costs) {
    state_costs({name, {name + "-eyes"}, costs});
    return fault_of([&] {
      (void)with_stated_costs(eyes_and_llm(), modules_of(name + "-eyes"), profile_of_eyes());
    });
  };
  CHECK(said("debtor",
             [](const LayerCosts&, const CostedRows&) {
               return LayerCosts{1, 1, -2, 1};
             }) ==
        "`costs` of stage kind 'debtor' says weight_gradient_ms = -2.000000 of eyes.block for 16 "
        "rows; times and bytes are finite and not below zero");
  for (const double value : {std::nan(""), HUGE_VAL}) {
    const auto words = said(value > 0 ? "endless" : "blank",
                            [value](const LayerCosts&, const CostedRows&) -> LayerCosts {
                              return {1, 1, 1, value};
                            });
    CHECK(words.find("says kept_bytes = ") != std::string::npos);
  }
  CHECK(said("thrower", [](const LayerCosts&, const CostedRows&) -> LayerCosts {
          throw std::runtime_error("no idea");
        }) == "`costs` of stage kind 'thrower' throws: no idea");
  CHECK(said("odd", [](const LayerCosts&, const CostedRows&) -> LayerCosts { throw 42; }) ==
        "`costs` of stage kind 'odd' throws no std::exception");
  state_costs({"lender", {"lender-eyes"}, {}, [](const LayerSpec&, const ModuleConfig&) {
                 return Bytes{-3};
               }});
  ModelGraph graph = eyes_and_llm();
  CHECK(fault_of([&] { note_held_bytes(modules_of("lender-eyes"), graph); }) ==
        "`holds` of stage kind 'lender' says -3 bytes of layer 'eyes.0'; bytes are not below zero");
}

TEST_CASE("what a kind of stages states comes to a job's costs and state", "[engine]") {
  const JobSetup plain = prepare(tiny_job()).value();
  job::Job job = tiny_job();
  // No module's family is one that another case's kind runs.
  for (ModuleConfig& module : job.modules) {
    models::Family own = *models::find_family(module.family);
    own.name = module.family = "stated-" + module.name;
    own.make = [](const ModuleConfig&, int, std::vector<models::Parameter>) {
      return std::unique_ptr<models::Layer>();
    };
    const auto registered = models::register_family(std::move(own));
    INFO((registered.ok() ? "" : to_string(registered.error())));
    REQUIRE(registered.ok());
  }
  REQUIRE(register_stage({"stated",
                          {"stated-vision"},
                          built_in_stage,
                          false,
                          run_again,
                          [](const LayerSpec&, const ModuleConfig& module) {
                            return Bytes{module.name == "vision" ? 1000 : -1};
                          }})
              .ok());
  const JobSetup setup = prepare(job).value();
  const auto own = cost_model(setup, nominal_profile(setup)).value();
  const auto usual = cost_model(plain, nominal_profile(plain)).value();
  for (std::int32_t layer = 0; layer < 3; ++layer) {
    const auto stated = own.cost({ModuleId{0}, layer}, 64).value();
    const auto before = usual.cost({ModuleId{0}, layer}, 64).value();
    CHECK(stated.forward_ms == before.forward_ms);
    CHECK(stated.input_grad_ms ==
          Catch::Approx(before.forward_ms + before.input_grad_ms).epsilon(0.2));
    CHECK(stated.activations == Bytes{});
    CHECK(before.activations > Bytes{});
  }
  const LayerId block{setup.model.llm(), 1};
  CHECK(own.cost(block, 64).value() == usual.cost(block, 64).value());

  const auto plan = make_parallel_plan(setup).value();
  const auto state = scheduler::stage_state_bytes(plan, {});
  const auto without = scheduler::stage_state_bytes(make_parallel_plan(plain).value(), {});
  CHECK(state[0] == without[0] + 3000);  // Of three layers.
  CHECK(state[1] == without[1]);
  CHECK(stage_kind_lines(plan, setup.modules()) ==
        std::vector<std::string>{"stage kind 'stated' runs 2 of 5 stages: vision 0-2, projector, "
                                 "planned by costs that it states"});
}

}  // namespace
}  // namespace troupe::engine
