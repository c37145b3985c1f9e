#include "runtime/observe/report_layouts.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/observe/report.hpp"
#include "tests/runtime/observe/example_plan.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::observe {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::ScratchFolder;

/// The example without its second pipeline, which was node 2's.
ParallelPlan without_node_2() {
  ParallelPlan plan = testing::example_plan();
  plan.devices.resize(3);
  plan.replicas.resize(2);
  plan.stages.resize(3);
  plan.pipelines.resize(1);
  plan.groups = {{"projector.0", false, 20, {{StageId{0}, {ModuleId{1}, 0}}}, {DeviceId{0}}},
                 {"llm.embed.weight",
                  true,
                  40,
                  {{StageId{1}, {ModuleId{2}, 0}}, {StageId{2}, {ModuleId{2}, 3}}},
                  {DeviceId{1}, DeviceId{2}}}};
  return plan;
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

/// Steps 1 to 6 of a run that lost node 2 in step 4; generation 2 was on the way to the next one.
void write_run(const std::filesystem::path& folder) {
  std::string metrics;
  for (int step = 1; step <= 6; ++step)
    metrics += "{\"step\":" + std::to_string(step) + ",\"loss\":1,\"epoch_number\":" +
               std::to_string(step < 3   ? 1
                              : step < 4 ? 2
                                         : 3) +
               "}\n";
  write(folder / "metrics.jsonl", metrics);
  write(folder / "events.jsonl",
        "{\"step\":3,\"generation\":2,\"kind\":\"checkpoint\",\"nodes\":[]}\n"
        "{\"step\":3,\"generation\":2,\"kind\":\"slow\",\"nodes\":[2],\"why\":\"it is\"}\n"
        "{\"step\":3,\"generation\":2,\"kind\":\"fast-again\",\"nodes\":[2],\"why\":\"it is\"}\n"
        "{\"step\":4,\"generation\":3,\"kind\":\"lost\",\"nodes\":[2],\"why\":\"it was killed\"}\n"
        "{\"step\":4,\"generation\":3,\"kind\":\"joined\",\"nodes\":[1],\"why\":\"it came\"}\n");
  write(folder / "plan-1.json", plan_json(testing::example_plan(), 1));
  write(folder / "plan.json", plan_json(without_node_2(), 3));
}

TEST_CASE("holders say what each node has, of which replica", "[observe]") {
  ParallelPlan plan = testing::example_plan();
  plan.devices.push_back({NodeId{7}, 0});
  plan.standbys = {{DeviceId{4}, {ModuleId{1}, 0}, ""},
                   {DeviceId{4}, {ModuleId{2}, 0}, "llm.embed.weight"}};
  CHECK(holders_of(plan) ==
        std::vector<ReportedHolder>{
            {NodeId{0}, {"vision, projector of replica 0"}, 0},
            {NodeId{1}, {"llm 0-1 of replica 1", "llm 2-3 of replica 1"}, 0},
            {NodeId{2}, {"vision, projector of replica 2", "llm 0-3 of replica 3"}, 0},
            {NodeId{7}, {}, 2}});
}

TEST_CASE("a run's layouts have their steps, holders and reasons", "[observe]") {
  const ScratchFolder folder;
  write_run(folder.path());
  const auto run = read_run(folder.path());
  REQUIRE(run.ok());
  const auto& layouts = run.value().layouts;
  CHECK(layouts.older == 0);
  REQUIRE(layouts.newest.size() == 3);
  const auto& [first, second, third] =
      std::tie(layouts.newest[0], layouts.newest[1], layouts.newest[2]);
  CHECK((first.generation == 1 && first.first_step == 1 && first.last_step == 2));
  CHECK(first.words == "2 pipelines of 3 and 2 stages");
  CHECK(first.holders.size() == 3);
  CHECK(first.why.empty());
  CHECK((second.generation == 2 && second.first_step == 3 && second.last_step == 3));
  CHECK(second.words.empty());  // plan-2.json is not there.
  CHECK(second.why.empty());    // A checkpoint brings no layout, nor does a slow node.
  CHECK((third.generation == 3 && third.first_step == 4 && third.last_step == 6));
  CHECK(third.words == "1 pipeline of 3 stages");
  CHECK(third.holders == holders_of(without_node_2()));
  CHECK(third.why == "Lost: nodes 2: it was killed. Joined: nodes 1: it came.");
}

TEST_CASE("a file of another generation is not taken for its own", "[observe][errors]") {
  const ScratchFolder folder;
  write_run(folder.path());
  write(folder / "plan-1.json", plan_json(without_node_2(), 7));
  write(folder / "plan-2.json", "{");
  const auto layouts = read_run(folder.path()).value().layouts.newest;
  CHECK((layouts[0].words.empty() && layouts[0].holders.empty()));
  CHECK(layouts[1].words.empty());
}

TEST_CASE("the page has a row for each layout, with who held what", "[observe]") {
  const ScratchFolder folder;
  write_run(folder.path());
  const auto page = report_page(read_run(folder.path()).value(), {}, "No timeline.");
  for (const auto* words :
       {"Layouts of the run", "<th scope=\"row\">1</th><td>1 to 2</td><td>3</td>",
        "node 2: vision, projector of replica 2; llm 0-3 of replica 3", "The job began.",
        "<th scope=\"row\">2</th><td>3</td><td></td><td class=\"text\">not recorded",
        "No event: on the way to a later one.", "<th scope=\"row\">3</th><td>4 to 6</td><td>2</td>",
        "Lost: nodes 2: it was killed. Joined: nodes 1: it came."})
    CHECK_THAT(page, ContainsSubstring(words));
}

TEST_CASE("of one layout there is no table, of many the newest are in it", "[observe]") {
  RunRecord run;
  run.metrics.steps = {1, 2};
  run.metrics.columns["epoch_number"] = {1, 1};
  run.layouts = read_layouts(run);
  CHECK(layouts_table(run).empty());
  for (int step = 3; step <= 80; ++step) {
    run.metrics.steps.push_back(step);
    run.metrics.columns["epoch_number"].push_back(step);
  }
  run.layouts = read_layouts(run);
  // 79 generations: 1 and 3 to 80.
  CHECK(run.layouts.older == 29);
  REQUIRE(run.layouts.newest.size() == 50);
  CHECK(run.layouts.newest.front().generation == 31);
  CHECK(run.layouts.newest.back().generation == 80);
  CHECK_THAT(layouts_table(run), ContainsSubstring("The last 50 of 79. "));
}

TEST_CASE("nodes of a large layout beyond the first ones are counted", "[observe]") {
  RunRecord run;
  for (EpochNumber generation = 1; generation <= 2; ++generation) {
    ReportedLayout layout;
    layout.generation = generation;
    layout.words = "many";
    for (int node = 0; node < 512; ++node) layout.holders.push_back({NodeId{node}, {"llm"}, 0});
    run.layouts.newest.push_back(layout);
  }
  const auto table = layouts_table(run);
  CHECK_THAT(table, ContainsSubstring("node 63: llm") && ContainsSubstring("and 448 nodes more"));
  CHECK_THAT(table, !ContainsSubstring("node 64: llm"));
}

TEST_CASE("a node without a stage stands by for what it holds, or has no work", "[observe]") {
  RunRecord run;
  for (EpochNumber generation = 1; generation <= 2; ++generation) {
    ReportedLayout layout;
    layout.generation = generation;
    layout.words = "few";
    layout.holders = {{NodeId{0}, {"llm"}, 2}, {NodeId{1}, {}, 3}, {NodeId{2}, {}, 0}};
    run.layouts.newest.push_back(layout);
  }
  const auto table = layouts_table(run);
  for (const auto* words :
       {"node 0: llm; stands by for 2 layers and tied parameters<",
        "node 1: standing by: holds 3 layers and tied parameters<", "node 2: no work<"})
    CHECK_THAT(table, ContainsSubstring(words));
}

}  // namespace
}  // namespace troupe::observe
