#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <fstream>
#include <regex>

#include "runtime/observe/report.hpp"
#include "runtime/observe/report_parts.hpp"
#include "runtime/observe/report_words.hpp"
#include "runtime/observe/run_event.hpp"
#include "tests/runtime/observe/example_plan.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::observe {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::ScratchFolder;

// A run of so many steps, with what most jobs record.
RunRecord run_of(int steps) {
  RunRecord run;
  run.name = "first";
  run.folder = "runs/first";
  for (int i = 1; i <= steps; ++i) {
    run.metrics.steps.push_back(i);
    const double wave = std::sin(i);
    for (const auto& [key, value] : std::map<std::string, double>{{"loss", 4.0 / i + 0.1 * wave},
                                                                  {"grad_norm", 2 + wave},
                                                                  {"lr", 1e-3 / i},
                                                                  {"samples", 16},
                                                                  {"tokens", 1000 + i % 7},
                                                                  {"step_ms", 100 + wave},
                                                                  {"bubble", 0.25 + 0.1 * wave},
                                                                  {"imbalance", 1.5 + wave / 9},
                                                                  {"plan_ms", 1 + wave},
                                                                  {"data_wait_ms", 5 + wave},
                                                                  {"plan_wait_ms", 0},
                                                                  {"nodes", 4}})
      run.metrics.columns[key].push_back(value);
  }
  return run;
}

RunFacts facts_of_6000() {
  RunFacts facts;
  facts.job = "first";
  facts.version = "0.1.0 (abc)";
  facts.host = "host-a";
  facts.cores = 8;
  facts.nodes = 3;
  facts.local_nodes = 1;
  facts.schedule = "split-1f1b";
  facts.policy = "dflop";
  facts.steps = 6000;
  facts.started_s = 1'795'411'353;
  facts.end = RunEnd{1'795'411'353 + 7500, 0, ""};
  return facts;
}

std::string page_of(const RunRecord& run) { return report_page(run, {}, "No timeline."); }

/// Where it stands on the page; it must be there.
std::size_t place(const std::string& page, const std::string& part) {
  const auto found = page.find(part, page.find("<main>"));
  CAPTURE(part);
  REQUIRE(found != std::string::npos);
  return found;
}

TEST_CASE("a page begins with what the job was, where it ran and how it ended", "[observe]") {
  auto run = run_of(60);
  run.facts = facts_of_6000();
  run.plan = RecordedPlan{1, testing::example_plan()};
  const auto page = page_of(run);
  const auto first_chart = place(page, "<figure");
  // By hand, from example_plan.hpp: vision 10, projector 20, llm 0 + 5 + 5 + 3 and 40 tied.
  for (const auto* words : {"Outcome", "2026-11-23 05:22 UTC, took 2 h 05 min",
                            "host-a, 8 cores; 2 of 3 nodes elsewhere", "troupe 0.1.0 (abc)",
                            "83, of which 73 are trained: vision 10 (frozen), projector 20, llm 53",
                            "2 pipelines of 3 and 2 stages on 4 devices of 3 nodes, schedule "
                            "split-1f1b, balancing dflop",
                            "Bad samples: none", "Events: none", "Loss, last step"})
    CHECK(place(page, words) < first_chart);
  CHECK(place(page, "<h3>Loss") < place(page, "<h3>Throughput, <span class=\"unit\">tokens/s"));
  CHECK(place(page, "<h3>Throughput") < place(page, "<h3>Where a step"));
  CHECK(place(page, "<h3>Where a step") < place(page, "<h2>Step by step"));
}

TEST_CASE("each stage of the table counts what is tied and it keeps, once", "[observe]") {
  auto run = run_of(60);
  run.plan = RecordedPlan{1, testing::example_plan()};
  run.plan->plan.model.tied[0].parameter_elements = 40'000'000;
  const auto page = page_of(run);
  // Two stages hold an end each, the last one both.
  std::size_t rows = 0;
  for (auto at = page.find("<td>40</td></tr>"); at != std::string::npos;
       at = page.find("<td>40</td></tr>", at + 1))
    ++rows;
  CHECK(rows == 3);
}

TEST_CASE("an older run's page says what is not known", "[observe]") {
  const auto page = page_of(run_of(60));
  CHECK_THAT(page, ContainsSubstring("<dt>Date</dt><dd><span class=\"muted\">not recorded"));
  CHECK_THAT(page, ContainsSubstring("Not recorded; the last is step 60"));
}

TEST_CASE("the outcome tells done, failed, stopped, running and killed apart", "[observe]") {
  auto run = run_of(12);
  run.facts = facts_of_6000();
  run.facts->steps = 12;
  CHECK(outcome(run) == "Done: 12 of 12 steps");
  run.facts->steps = 0;
  CHECK(outcome(run) == "Done: 12 steps");
  run.facts->steps = 6000;
  run.facts->end->exit_code = 1;
  run.facts->end->message = "node 2 was lost\n  fix: restart it\n";
  CHECK(outcome(run) == "Failed after step 12 of 6,000: node 2 was lost;  fix: restart it");
  run.facts->end->message = "";
  for (const std::int32_t told : {75, 129, 130, 143}) {
    run.facts->end->exit_code = told;
    CHECK(outcome(run) == "Stopped after step 12 of 6,000");
  }
  run.facts->end.reset();
  CHECK_THAT(outcome(run), ContainsSubstring("Ended without a word after step 12 of 6,000"));
  run.running = true;
  CHECK(outcome(run) == "Still running: step 12 of 6,000 is done");
}

TEST_CASE("bad samples and events stand above the charts", "[observe]") {
  auto run = run_of(60);
  for (int i = 0; i < 3000; ++i)
    run.bad_samples.push_back({"s" + std::to_string(i), i % 3 == 0 ? "no file" : "cut off"});
  run.events = {{7, "The number of nodes went from 4 to 3."}};
  const auto page = page_of(run);
  const auto first_chart = place(page, "<figure");
  CHECK(place(page, "3,000 bad samples were not trained") < first_chart);
  CHECK(place(page, "2,000 x cut off") < place(page, "1,000 x no file"));
  CHECK(place(page, "<b>Step 7</b> The number of nodes went from 4 to 3.") < first_chart);
  // All of ten thousand events would be a page of their own.
  for (int i = 8; i < 10'000; ++i) run.events.push_back({i, "The step left the parameters alone."});
  const auto long_page = page_of(run);
  CHECK(place(long_page, "9,990 more events, of which the first 200") <
        place(long_page, "<figure"));
  CHECK(long_page.find("<b>Step 300</b>") == std::string::npos);
}

TEST_CASE("what happened is read from events and from metrics", "[observe]") {
  const ScratchFolder folder;
  std::ofstream(folder / "events.jsonl")
      << R"({"step":4,"kind":"lost","nodes":[2],"why":"no heartbeat for 3 s"})"
      << "\n"
      << R"({"step":9,"kind":"checkpoint","nodes":[]})"
      << "\nnot JSON\n";
  MetricsTable metrics;
  metrics.steps = {1, 2, 3, 4, 5, 6, 4, 5};
  metrics.columns["nodes"] = {4, 4, 4, NAN, 3, 3, 3, 3};
  metrics.columns["epoch_number"] = {1, 1, 1, 1, 2, 2, 2, 2};
  metrics.skipped = {{1, "no loss"}, {2, "no loss"}, {3, "other"}, {5, "other"}};
  std::vector<std::string> found;
  for (const auto& event : read_events(folder.path(), metrics))
    found.push_back(std::to_string(event.step) + " " + event.words);
  CHECK(found ==
        std::vector<std::string>{"1 2 steps from this one on left the parameters alone: no loss.",
                                 "3 The step left the parameters alone: other.",
                                 "4 Lost: nodes 2: no heartbeat for 3 s.",
                                 "4 The run went back to this step after step 6.",
                                 "5 The step left the parameters alone: other.",
                                 "5 The number of nodes went from 4 to 3.",
                                 "5 The configuration went from 1 to 2.", "9 Checkpoint written."});
}

TEST_CASE("an event whose nodes are nested without end names none", "[observe][errors]") {
  const ScratchFolder folder;
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  std::ofstream(folder / "events.jsonl")
      << R"({"step":4,"kind":"lost","nodes":[1,)" << deep << R"(],"why":"it died"})"
      << "\n";
  const auto events = read_events(folder.path(), {});
  REQUIRE(events.size() == 1);
  CHECK(events[0].words == "Lost: nodes 1: it died.");
}

TEST_CASE("a layout that was recorded is told once, by its own words", "[observe]") {
  const ScratchFolder folder;
  RunEvent event;
  event.step = 5;
  event.generation = 2;
  event.kind = "layout";
  event.nodes = {NodeId{0}, NodeId{2}};
  event.why = "1 pipeline of 2 stages";
  std::ofstream(folder / "events.jsonl") << event_line(event) << "\n";
  MetricsTable metrics;
  metrics.steps = {4, 5, 6};
  metrics.columns["epoch_number"] = {1, 2, 3};
  const auto events = read_events(folder.path(), metrics);
  REQUIRE(events.size() == 2);
  CHECK(events[0].words == "Another layout, nodes 0 2: 1 pipeline of 2 stages.");
  CHECK(events[1].words == "The configuration went from 2 to 3.");
}

TEST_CASE("an event took all its phases, but not the time in which others trained", "[observe]") {
  const ScratchFolder folder;
  RunEvent event;
  event.kind = "joined";
  event.detect_ms = 1, event.decide_ms = 2, event.connect_ms = 4, event.copy_ms = 8;
  event.rebuild_ms = 16, event.decode_ms = 32, event.replay_ms = 64;
  event.warm_up_ms = 128, event.warm_up_steps = 1;
  event.waited_ms = 256;
  RunEvent beside = event;
  beside.has_phases = false;
  std::ofstream(folder / "events.jsonl") << event_line(event) << "\n" << event_line(beside) << "\n";
  const auto events = read_events(folder.path(), {});
  REQUIRE(events.size() == 2);
  CHECK(events[0].took_ms == 127 + 256);
  CHECK(events[1].took_ms == 0);
}

TEST_CASE("checkpoints and resumes are marks of charts and rows of a table", "[observe]") {
  const ScratchFolder folder;
  std::ofstream(folder / "events.jsonl")
      << R"({"time":"2026-11-23T19:11:29Z","step":21,"kind":"checkpoint","nodes":[],"why":"state of )"
      << R"(step 20","copy_ms":2,"copy_bytes":14820048,"rebuild_ms":108})"
      << "\n"
      << R"({"time":"2026-11-23T19:12:00Z","step":31,"kind":"resumed","nodes":[0],"why":"from x"})"
      << "\n"
      << R"({"time":"2026-11-23T19:12:01Z","step":31,"kind":"began-without","nodes":[1],"why":"it"})"
      << "\n";
  auto run = run_of(60);
  run.events = read_events(folder.path(), run.metrics);
  const auto marks = event_marks(run);
  REQUIRE(marks.size() == 3);
  CHECK(marks[2].name == "node missing at the start");
  // A checkpoint holds the state of the step before.
  CHECK(marks[0].x == 20);
  CHECK(marks[0].name == "checkpoint");
  CHECK(marks[1].x == 31);
  CHECK(marks[1].name == "resumed");

  const auto page = page_of(run);
  const auto throughput = place(page, "<h3>Throughput, <span class=\"unit\">tokens/s");
  const auto loss = page.substr(place(page, "<h3>Loss"), throughput - place(page, "<h3>Loss"));
  CHECK_THAT(loss, ContainsSubstring("m-checkpoint") && ContainsSubstring("m-resumed"));
  // 2 + 108 ms, 14.82 MB.
  CHECK_THAT(
      page.substr(place(page, "id=\"events\"")),
      ContainsSubstring("<th scope=\"row\">20</th><td class=\"text\">checkpoint</td><td "
                        "class=\"text time\">2026-11-23T19:11:29Z</td><td>110</td><td>14.82</td>"
                        "<td class=\"text\">state of step 20</td>"));
  // That it was resumed is news; that it saved is as it should be.
  const auto first_chart = place(page, "<figure");
  CHECK(place(page, "<b>Step 31</b> Resumed") < first_chart);
  CHECK(place(page, "<b>Step 31</b> Began without") < first_chart);
  CHECK(place(page, ">1 checkpoint</a> was written") < first_chart);
  CHECK(page.find("<b>Step 21</b>") == std::string::npos);
}

TEST_CASE("a node that slows down is a mark of charts", "[observe]") {
  auto run = run_of(60);
  ReportedEvent event{20, "Slowed down, nodes 1."};
  event.kind = "slow";
  run.events.push_back(event);
  const auto marks = event_marks(run);
  REQUIRE(marks.size() == 1);
  CHECK(marks[0].name == "node slow");
  CHECK_THAT(page_of(run), ContainsSubstring("class=\"mark m-slow\""));
}

TEST_CASE("of very many checkpoints a page has the last and the number", "[observe]") {
  auto run = run_of(60);
  for (int i = 1; i <= 3000; ++i) {
    ReportedEvent event{i, "Checkpoint written."};
    event.kind = "checkpoint";
    run.events.push_back(event);
  }
  const auto page = page_of(run);
  CHECK_THAT(page, ContainsSubstring("The last 50 of 3000") &&
                       ContainsSubstring("<th scope=\"row\">2999</th>") &&
                       ContainsSubstring("3,000 checkpoints</a> were written"));
  CHECK(page.find("<th scope=\"row\">2949</th>") == std::string::npos);
}

TEST_CASE("times of checkpoints are drawn where one was completed", "[observe]") {
  const ScratchFolder folder;
  std::ofstream metrics(folder / "metrics.jsonl");
  for (int step = 1; step <= 9; ++step)
    metrics << "{\"step\":" << step << ",\"loss\":1,\"step_ms\":" << (step == 5 ? 300 : 100)
            << ",\"tflops_per_device\":" << (step == 5 ? 1 : 3) << ",\"mfu\":0.25"
            << ",\"checkpoint_stall_ms\":" << (step == 6 ? 7 : 0) << ",\"checkpoint_ms\":"
            << (step == 3   ? 80
                : step == 6 ? 40
                            : 0)
            << "}\n";
  metrics.close();
  std::ofstream(folder / "events.jsonl") << R"({"step":3,"kind":"checkpoint","nodes":[]})"
                                         << "\n";
  const auto run = read_run(folder.path()).value();
  std::map<std::string, double> figures;
  for (const auto& figure : report_figures(run)) figures[figure.key] = figure.value;
  CHECK(figures.at("checkpoint_ms_median") == 60);
  CHECK(figures.at("checkpoint_stall_ms_max") == 7);
  CHECK(figures.at("checkpoints") == 1);
  CHECK(figures.at("mfu_percent_mean") == 25);
  // Without the first step: (7 x 100 x 3 + 300 x 1) / 1000.
  CHECK(figures.at("tflops_per_device_mean") == 2.4);
  CHECK_THAT(page_of(run), ContainsSubstring("<h3>Checkpoints, <span class=\"unit\">ms") &&
                               ContainsSubstring("<h3>Model arithmetic per device"));
}

TEST_CASE("a page speaks words, not keys", "[observe]") {
  auto run = run_of(60);
  run.metrics.columns["peak_activation_bytes"].resize(60, 5e6);
  run.metrics.columns["peak_activation_bytes"][3] = 6e6;
  const auto page = page_of(run);
  const std::string body =
      std::regex_replace(page.substr(page.find("<main>"), page.rfind("</main>")),
                         std::regex("<script[^]*?</script>"), "");
  CHECK_THAT(body, ContainsSubstring("<h3>Peak activation, <span class=\"unit\">MB"));
  for (const auto& [key, column] : run.metrics.columns)
    if (key.find('_') != std::string::npos) CHECK_THAT(body, !ContainsSubstring(key));
  CHECK(key_words("time_to_first_batch_ms").text == "Time to first batch");
  CHECK(key_words("time_to_first_batch_ms").unit == "ms");
  CHECK(key_words("_ms").text == " ms");
  CHECK(key_words("bubble").factor == 100);
}

TEST_CASE("what never changes is a line of a table, not a chart", "[observe]") {
  auto run = run_of(60);
  run.metrics.columns["held_rows"].assign(60, 0);
  run.metrics.columns["activation_bytes"].assign(60, 5e6);
  auto page = page_of(run);
  CHECK_THAT(page, !ContainsSubstring("<h3>Rows held for deferral") &&
                       !ContainsSubstring("<h3>Memory: activations") &&
                       !ContainsSubstring("<h3>Nodes"));
  CHECK_THAT(page, ContainsSubstring("<th scope=\"row\">Rows held for deferral</th><td>0</td>") &&
                       ContainsSubstring("<th scope=\"row\">Memory: activations</th><td>5</td>"));
  // One step that differs makes it a curve again.
  run.metrics.columns["held_rows"][30] = 1;
  CHECK_THAT(page_of(run), ContainsSubstring("<h3>Rows held for deferral"));
}

TEST_CASE("a loss of many steps is smoothed, with held-out loss beside it", "[observe]") {
  CHECK_THAT(page_of(run_of(49)), !ContainsSubstring(">smoothed<"));
  auto run = run_of(60);
  CHECK_THAT(page_of(run), ContainsSubstring(">smoothed<") && !ContainsSubstring("held-out"));
  const ScratchFolder folder;
  std::ofstream file(folder / "metrics.jsonl");
  for (int i = 1; i <= 60; ++i)
    file << "{\"step\":" << i << ",\"loss\":" << 4.0 / i
         << (i % 10 == 0 ? ",\"eval_loss\":2.5" : "") << "}\n";
  file.close();
  const auto page = page_of(read_run(folder.path()).value());
  const auto loss = page.substr(place(page, "<h3>Loss"), 200'000);
  const auto chart = loss.substr(0, loss.find("</figure>"));
  CHECK_THAT(chart, ContainsSubstring("held-out samples") && ContainsSubstring("log scale"));
  CHECK_THAT(page, ContainsSubstring("Held-out loss, last</dt><dd>2.5"));
}

TEST_CASE("the time of a step is split into what devices did", "[observe]") {
  auto run = run_of(3);
  run.metrics.columns["step_ms"] = {900, 100, 100};
  for (const auto& [key, value] : std::map<std::string, double>{{"compute_ms", 50},
                                                                {"update_ms", 10},
                                                                {"transfer_ms", 1},
                                                                {"wait_ms", 20},
                                                                {"data_wait_ms", 5},
                                                                {"plan_wait_ms", 0}})
    run.metrics.columns[key].assign(3, value);
  const auto chart_of = [](const std::string& page) {
    const auto chart = page.substr(place(page, "<h3>Where a step"));
    return chart.substr(0, chart.find("</figure>"));
  };
  // By hand: 100 - 50 - 10 - 1 - 20 - 5 = 14 ms between steps; the first step is left out, and
  // so is what took no time.
  const auto chart = chart_of(page_of(run));
  const auto part = [](const std::string& name, const std::string& values) {
    return ContainsSubstring("{\"name\":\"" + name + "\",\"y\":[" + values + "]}");
  };
  CHECK_THAT(chart, part("computing", "50.0,50.0") &&
                        part("waiting for other stages", "20.0,20.0") &&
                        part("between steps, and all else", "14.0,14.0"));
  CHECK_THAT(chart, !ContainsSubstring("planning"));
  // A run that did not record it: of 95 ms not waited for, a quarter stages stood idle.
  for (const auto* key : {"compute_ms", "update_ms", "transfer_ms", "wait_ms"})
    run.metrics.columns.erase(key);
  run.metrics.columns["bubble"].assign(3, 0.25);
  const auto older = chart_of(page_of(run));
  CHECK_THAT(older,
             part("stages at work", "71.25,71.25") && part("stages idle (bubble)", "23.75,23.75"));
}

TEST_CASE("a page of a hundred thousand steps is as small as one of six thousand", "[observe]") {
  const auto six = page_of(run_of(6000)).size(), hundred = page_of(run_of(100'000)).size();
  CHECK(hundred < 1'500'000);
  CHECK(hundred < six + six / 10);
}

}  // namespace
}  // namespace troupe::observe
