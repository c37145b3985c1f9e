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
#include "runtime/data/made/demo_data.hpp"
#include "runtime/vocabulary/user_code.hpp"
#include "scheduler/simulate/predicted_costs.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/runtime/data/temp_folder.hpp"
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

/// Gives each module of the job a family of its own, which no other case's kind runs.
void register_families_of_its_own(const std::string& prefix, job::Job& job) {
  for (ModuleConfig& module : job.modules) {
    models::Family own = *models::find_family(module.family);
    own.name = module.family = prefix + "-" + module.name;
    own.make = [](const ModuleConfig&, int, std::vector<models::Parameter>) {
      return std::unique_ptr<models::Layer>();
    };
    const auto registered = models::register_family(std::move(own));
    INFO((registered.ok() ? "" : to_string(registered.error())));
    REQUIRE(registered.ok());
  }
}

TEST_CASE("what a kind of stages states comes to a job's costs and state", "[engine]") {
  const JobSetup plain = prepare(tiny_job()).value();
  job::Job job = tiny_job();
  register_families_of_its_own("stated", job);
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

TEST_CASE("modules of the encoder side are told apart by the kinds of their stages", "[engine]") {
  ModelGraph graph = eyes_and_llm();
  graph.modules.insert(
      graph.modules.begin(),
      ModuleSpec{"ears", ModuleKind::encoder, false, {ModuleId{2}}, {{"ears.0", 5}}, 32, 32});
  std::vector<ModuleConfig> modules = modules_of("apart-eyes");
  modules.push_back({"ears", ModuleKind::encoder, "apart-ears", "llm", false, {}, 0.02, {}});
  modules[1].family = "apart-llm";
  CHECK(kinds_by_module(graph, modules).empty());
  state_costs({"apart-lookers", {"apart-eyes"}});
  CHECK(kinds_by_module(graph, modules).empty());  // Who goes with any stands in nobody's way.
  state_costs({"apart-listeners", {"apart-ears", "apart-llm"}});
  const auto kinds = kinds_by_module(graph, modules);
  REQUIRE(kinds.size() == 3);
  CHECK(kinds[0] > 0);
  CHECK(kinds[1] > 0);
  CHECK(kinds[0] != kinds[1]);
  CHECK(kinds[2] == 0);  // The llm shares no stage.
  modules[2].family = "apart-eyes";
  CHECK(kinds_by_module(graph, modules).empty());
}

TEST_CASE("an open layout is cut where two kinds of stages meet, on a single device too",
          "[engine]") {
  data::TempFolder folder;
  job::Job job = tiny_job();
  register_families_of_its_own("open", job);
  REQUIRE(register_stage({"open-lookers", {"open-vision"}, built_in_stage}).ok());
  REQUIRE(register_stage({"open-joiners", {"open-projector"}, built_in_stage}).ok());
  job.data.sources.resize(1);
  job.data.sources[0].json =
      data::make_demo_data(folder.path(), {.samples = 20, .seed = 3}).value().json;
  job.data.sources[0].format = "llava";
  job.job.name = "open";
  job.job.run_dir = folder.path() / "runs" / "open";
  job.parallel.mode = job::LayoutMode::automatic;
  job.parallel.layout = {};
  job.cluster.nodes = job.cluster.local_nodes = 1;
  const JobSetup setup = prepare(job).value();
  const auto layout = choose_layout(setup);
  INFO((layout.ok() ? "" : to_string(layout.error())));
  REQUIRE(layout.ok());
  const ParallelPlan& plan = layout.value().plan;
  std::vector<std::string> kinds;
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    kinds.push_back(stage_kind_of(plan, StageId{s}, setup.modules()));
  CHECK(kinds == std::vector<std::string>{"open-lookers", "open-joiners", ""});
}

}  // namespace
}  // namespace troupe::engine
