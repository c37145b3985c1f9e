// Layouts of models whose modules are run by kinds of stages that may not meet in one stage.

#include "scheduler/layout/kind_cuts.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "scheduler/recovery/first_layout.hpp"
#include "scheduler/recovery/relayout.hpp"
#include "scheduler/recovery/template_layout.hpp"
#include "tests/scheduler/example_models.hpp"
#include "tests/scheduler/group_replicas.hpp"
#include "tests/scheduler/layout_requests.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::but;
using testing::draw;
using testing::model_of;
using testing::request_on;
using testing::vision_audio_llm;

using Kinds = std::vector<std::int32_t>;

/// Vision and audio have a kind each; the others go with either.
const Kinds kApart{1, 0, 2, 0, 0};

/// Any kinds of encoders and projectors.
Kinds random_kinds(std::mt19937& random) {
  Kinds kinds(5);
  for (std::size_t m = 0; m < 4; ++m) kinds[m] = draw(random, 0, 3);
  return kinds;
}

/// Whether one kind, or none, runs all of these.
bool may_share(const std::vector<ModuleId>& modules, const Kinds& kinds) {
  std::set<std::int32_t> met;
  for (const ModuleId module : modules) met.insert(kinds[module.index()]);
  met.erase(0);
  return met.size() < 2;
}

/// Whether no stage has layers of two kinds.
bool are_apart(const ParallelPlan& plan, const Kinds& kinds) {
  return std::ranges::all_of(plan.stages, [&](const Stage& stage) {
    std::vector<ModuleId> modules;
    for (const LayerRun& run : stage.runs) modules.push_back(run.module);
    return may_share(modules, kinds);
  });
}

TEST_CASE("an entry is cut where two kinds meet", "[scheduler]") {
  const ModelGraph model = vision_audio_llm();
  const HandStage entry{
      1, 2, {{"vision", LayerRange{2, 4}}, {"vision_projector", {}}, {"audio", LayerRange{0, 2}}}};
  const std::vector<HandStage> whole{entry};
  const std::vector<HandStage> cut{{1, 2, {{"vision", LayerRange{2, 4}}, {"vision_projector", {}}}},
                                   {1, 2, {{"audio", LayerRange{0, 2}}}}};
  CHECK((cut_by_kinds(model, kApart, entry) == cut));
  // Nobody's layers go with any, and what has one kind stays together.
  CHECK((cut_by_kinds(model, {}, entry) == whole));
  CHECK((cut_by_kinds(model, {0, 0, 2, 0, 0}, entry) == whole));
  CHECK((cut_by_kinds(model, {2, 0, 2, 0, 0}, entry) == whole));
  CHECK(cut_by_kinds(model, {1, 2, 1, 2, 0}, entry).size() == 3);
  const HandStage grid{.node = 0, .runs = entry.runs, .devices = {0, 1}, .tp = 2};
  const auto parts = cut_by_kinds(model, kApart, grid);
  REQUIRE(parts.size() == 2);
  CHECK(parts.back().devices == grid.devices);
  CHECK(parts.back().tp == 2);
}

/// The fewest pieces of a row of modules that each have one kind, of every way to cut it.
std::int32_t fewest_pieces(const std::vector<ModuleId>& modules, const Kinds& kinds) {
  const auto borders = static_cast<unsigned>(modules.size() - 1);
  auto fewest = static_cast<std::int32_t>(modules.size());
  for (unsigned cuts = 0; cuts < 1U << borders; ++cuts) {  // A bit per border.
    bool is_allowed = true;
    std::vector<ModuleId> piece;
    for (unsigned i = 0; i <= borders; ++i) {
      piece.push_back(modules[i]);
      if (i < borders && (cuts >> i & 1U) == 0) continue;
      is_allowed = is_allowed && may_share(piece, kinds);
      piece.clear();
    }
    if (is_allowed) fewest = std::min(fewest, 1 + __builtin_popcount(cuts));
  }
  return fewest;
}

TEST_CASE("no cut between kinds has fewer entries", "[scheduler][property]") {
  const ModelGraph model = vision_audio_llm();
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const Kinds kinds = random_kinds(random);
    HandStage entry{draw(random, 0, 3), draw(random, 0, 3), {}};
    std::vector<ModuleId> modules;
    for (std::size_t m = 0; m < kinds.size(); ++m) {
      if (draw(random, 0, 3) == 0) continue;
      entry.runs.push_back({model.modules[m].name, LayerRange{0, 1}});
      modules.push_back(ModuleId{m});
    }
    if (modules.empty()) continue;
    INFO("seed " << seed);
    const auto made = cut_by_kinds(model, kinds, entry);
    CHECK(std::ssize(made) == fewest_pieces(modules, kinds));
    HandStage joined{entry.node, entry.device, {}};
    for (const HandStage& part : made) {
      std::vector<ModuleId> own;
      for (const HandRun& run : part.runs) own.push_back(model.find(run.module));
      CHECK(may_share(own, kinds));
      CHECK((part.node == entry.node && part.device == entry.device));
      joined.runs.insert(joined.runs.end(), part.runs.begin(), part.runs.end());
    }
    CHECK((joined == entry));
  }
}

TEST_CASE("a device has a stage of each kind where it has layers of two", "[scheduler]") {
  const CostModel model = model_of(vision_audio_llm(), {1, 2, 3, 1, 2});
  AutoLayoutRequest request = request_on(model, 1);
  const AutoLayout plain = auto_layout(request).value();
  REQUIRE(plain.plan.stages.size() == 2);  // Of the encoders and of the llm.
  request.stage_kinds = kApart;
  const AutoLayout made = auto_layout(request).value();
  CHECK(made.plan.stages.size() == 3);
  CHECK(are_apart(made.plan, kApart));
  // What is printed is what is planned.
  CHECK((place_by_hand(model.graph(), made.layout, request.cluster).value() == made.plan));
  const auto cuts = std::ranges::find(made.reasons, std::string("cuts"), &LayoutReason::choice);
  REQUIRE(cuts != made.reasons.end());
  CHECK_THAT(cuts->why, ContainsSubstring("layers of two stage kinds are in stages apart"));
}

TEST_CASE("a kind that runs all encoders changes no layout", "[scheduler]") {
  const CostModel model = model_of(vision_audio_llm(), {1, 2, 3, 1, 2});
  AutoLayoutRequest request = request_on(model, 3);
  const AutoLayout plain = auto_layout(request).value();
  request.stage_kinds = {1, 1, 1, 1, 0};
  const AutoLayout made = auto_layout(request).value();
  CHECK((made.layout == plain.layout));
  CHECK(made.predicted.step_ms == plain.predicted.step_ms);
}

TEST_CASE("no layout that is chosen has a stage of two kinds", "[scheduler][property]") {
  const CostModel model = model_of(vision_audio_llm(), {1, 2, 3, 1, 2});
  for (unsigned seed = 0; seed < 24; ++seed) {
    std::mt19937 random(seed);
    AutoLayoutRequest request = request_on(model, draw(random, 1, 4));
    request.stage_kinds = random_kinds(random);
    request.schedule = draw(random, 0, 1) == 0 ? "1f1b" : "three-phase";
    request.fault_tolerance = request.cluster.nodes > 1 ? draw(random, 0, 1) : 0;
    INFO("seed " << seed);
    const auto made = first_layout(request);
    REQUIRE(made.ok());
    CHECK(are_apart(made.value().plan, request.stage_kinds));
  }
}

TEST_CASE("a job that begins from templates has no stage of two kinds", "[scheduler][recovery]") {
  const CostModel model = model_of(vision_audio_llm(), {1, 2, 3, 1, 2});
  AutoLayoutRequest request = request_on(model, 2);
  request.stage_kinds = kApart;
  request.fault_tolerance = 1;
  // As if two pipelines were fastest, which templates have too: one on each node.
  request.judge = [plain = request](const ParallelPlan& plan) -> Result<PredictedStep> {
    auto step = predict_step(plan, plain);
    if (step.ok()) step.value().step_ms = plan.pipelines.size() == 2 ? 8 : 10;
    return step;
  };
  const AutoLayout made = first_layout(request).value();
  CHECK(made.reasons.back().choice == "from templates");
  CHECK(made.plan.stages.size() == 6);
  CHECK(are_apart(made.plan, kApart));
}

TEST_CASE("a template's device has a stage of each kind", "[scheduler][recovery][property]") {
  const ModelGraph model = vision_audio_llm();
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const Kinds kinds = random_kinds(random);
    TemplateRequest request;
    for (std::size_t l = 0; l < layers_of(model).size(); ++l)
      request.layers.push_back({1.0 * draw(random, 1, 9), 0, Bytes{1}, {}});
    request.node_count = 4;
    request.device_memory = Bytes{15};
    const std::vector<std::int32_t> nodes{3, 1, 2, 0};
    const TemplateSet set = make_templates(request).value();
    for (const PipelineTemplate& made : set.templates) {
      const auto stages = stages_of_template(model, layers_of(model), made, nodes, kinds).value();
      const auto whole = stages_of_template(model, layers_of(model), made, nodes, {}).value();
      INFO("seed " << seed << ", " << made.node_count << " nodes");
      REQUIRE(whole.size() == made.stages.size());
      CHECK(are_apart(place_by_hand(model, {{stages}}, {4, 1}, IdleDevices::left_out).value(),
                      kinds));
      std::vector<HandStage> cut;
      for (const HandStage& entry : whole)
        for (const HandStage& part : cut_by_kinds(model, kinds, entry)) cut.push_back(part);
      CHECK((stages == cut));
    }
  }
}

TEST_CASE("templates know the kinds of the request", "[scheduler][recovery]") {
  const CostModel model = model_of(vision_audio_llm(), {1});
  AutoLayoutRequest request = request_on(model, 3);
  request.stage_kinds = kApart;
  CHECK(layout_templates(request, model.graph(), 1, 3, 0).value().stage_kinds == kApart);
  const HandLayout layout{{},
                          {{{"vision", "audio"}, {{0, 0, {{"vision", {}}, {"audio", {}}}}}},
                           {{"vision", "audio"}, {{1, 0, {{"vision", {}}, {"audio", {}}}}}},
                           {{"llm"}, {{2, 0, {{"llm", {}}}}}}}};
  const auto plan = place_by_hand(model.graph(), layout, request.cluster).value();
  const auto groups = group_templates(request, plan, 3).value();
  REQUIRE(groups.size() == 2);
  for (const TemplateSet& group : groups) CHECK(group.stage_kinds == kApart);
}

/// Of the layouts that a job may go on with after a loss, those without a stage of two kinds.
std::size_t count_apart(const std::vector<Relayout>& made) {
  return static_cast<std::size_t>(
      std::ranges::count_if(made, [](const Relayout& own) { return are_apart(own.plan, kApart); }));
}

TEST_CASE("pipelines that are cut anew have no stage of two kinds", "[scheduler][recovery]") {
  // Each on two nodes, of which one has audio alone. Node 3 goes: node 2 gets all layers.
  const HandLayout layout{{{{0, 0, {{"audio", {}}}}, {1, 0, {{"vision", {}}, {"llm", {}}}}},
                           {{2, 0, {{"audio", {}}}}, {3, 0, {{"vision", {}}, {"llm", {}}}}}}};
  const auto plan = place_by_hand(vision_audio_llm(), layout, {4, 1}).value();
  TemplateRequest request;
  request.layers.assign(15, {1, 2, Bytes{1}, {}});
  request.node_count = 4;
  request.device_memory = Bytes{15};
  TemplateSet set = make_templates(request).value();
  const auto all = [&] { return relayouts({plan, {4, 1}, set, 8, {}, but(4, {3})}).value(); };
  const auto whole = all();
  CHECK(count_apart(whole) < whole.size());
  set.stage_kinds = kApart;
  const auto cut = all();
  CHECK(count_apart(cut) == cut.size());
}

TEST_CASE("replicas that are cut anew have no stage of two kinds", "[scheduler][recovery]") {
  // Encoders of two replicas, each on a node of its own. Node 1 goes: node 0 gets both.
  const HandLayout layout{
      {},
      {{{"vision", "audio"}, {{0, 0, {{"vision", {}}}}, {1, 0, {{"audio", {}}}}}},
       {{"vision", "audio"}, {{2, 0, {{"vision", {}}}}, {3, 0, {{"audio", {}}}}}},
       {{"llm"}, {{4, 0, {{"llm", {}}}}}}}};
  const auto plan = place_by_hand(vision_audio_llm(), layout, {5, 1}).value();
  TemplateSet set = testing::templates(5, 9, 6);
  const auto all = [&] { return relayouts({plan, {5, 1}, set, 8, {}, but(5, {1})}).value(); };
  const auto whole = all();
  CHECK(count_apart(whole) < whole.size());
  for (TemplateSet& group : set.groups) group.stage_kinds = kApart;
  const auto cut = all();
  CHECK(count_apart(cut) == cut.size());
}

}  // namespace
}  // namespace troupe::scheduler
