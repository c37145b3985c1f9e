#include "runtime/observe/report.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <fstream>

#include "tests/runtime/observe/example_plan.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::observe {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::ScratchFolder;

constexpr const char* kMetrics =
    "{\"step\":1,\"loss\":4.0,\"tokens\":100,\"samples\":2,\"step_ms\":900}\n"
    "{\"step\":2,\"loss\":3.0,\"tokens\":100,\"samples\":2,\"step_ms\":100,\"bubble\":0.5}\n"
    "{\"step\":3,\"loss\":null,\"tokens\":200,\"samples\":2,\"step_ms\":400,\"bubble\":0.3}\n";

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

double value_of(const RunRecord& run, const std::string& key) {
  for (const auto& figure : report_figures(run))
    if (figure.key == key) return figure.value;
  return NAN;
}

TEST_CASE("metrics become columns with gaps where a line has no number", "[observe]") {
  const ScratchFolder folder;
  write(folder / "metrics.jsonl", kMetrics);
  const auto table = read_metrics(folder / "metrics.jsonl").value();
  CHECK(table.steps == std::vector<double>{1, 2, 3});
  CHECK(*table.find("tokens") == std::vector<double>{100, 100, 200});
  CHECK(std::isnan((*table.find("bubble"))[0]));
  CHECK((*table.find("bubble"))[2] == 0.3);
  CHECK(std::isnan((*table.find("loss"))[2]));
  CHECK(table.find("step") == nullptr);
  CHECK_FALSE(table.last_line_cut);
}

TEST_CASE("a last line that was cut is told and left out", "[observe]") {
  const ScratchFolder folder;
  for (const auto* end : {"{\"step\":4,\"lo", "{\"step\":4,\"lo\n"}) {
    write(folder / "metrics.jsonl", std::string(kMetrics) + end);
    const auto run = read_run(folder.path()).value();
    CHECK(run.metrics.steps.size() == 3);
    CHECK_THAT(run.notes.front(), ContainsSubstring("is cut"));
  }
}

TEST_CASE("a report leaves the first step out of means and rates", "[observe]") {
  const ScratchFolder folder;
  write(folder / "metrics.jsonl", kMetrics);
  const auto run = read_run(folder.path()).value();
  CHECK(value_of(run, "steps") == 3);
  CHECK(value_of(run, "loss_first") == 4);
  CHECK(value_of(run, "loss_last") == 3);
  CHECK(value_of(run, "step_ms_median") == 250);
  // 300 tokens in 500 ms, not the mean of 1,000 and 500 tokens/s.
  CHECK(value_of(run, "tokens_per_s") == 600);
  CHECK(value_of(run, "bubble_percent_mean") == 40);
  CHECK(std::isnan(value_of(run, "imbalance_mean")));
}

TEST_CASE("a report says what its run did not record", "[observe]") {
  const ScratchFolder folder;
  write(folder / "metrics.jsonl", kMetrics);
  write(folder / "bad_samples.jsonl", "{\"id\":\"s<7>\",\"reason\":\"no picture\"}\n");
  auto run = read_run(folder.path()).value();
  const auto without = report_page(run, {}, "No timeline: none was asked for.");
  CHECK_THAT(without, ContainsSubstring("imbalance before balancing") &&
                          ContainsSubstring("Anything about memory") &&
                          ContainsSubstring("run.json is missing") &&
                          ContainsSubstring("none was asked for") &&
                          ContainsSubstring("plan.json is missing") &&
                          ContainsSubstring("s&lt;7&gt;"));
  run.plan = RecordedPlan{3, testing::example_plan()};
  run.metrics.columns["imbalance_in_order"] = {2, 2, 2};
  run.metrics.columns["peak_activation_bytes"] = {5e6, 5e6, 5e6};
  const auto with = report_page(run, {}, "");
  CHECK_THAT(with, ContainsSubstring("Configuration 3") && ContainsSubstring("llm 0 to 1") &&
                       ContainsSubstring("Peak activation"));
  CHECK_THAT(with, !ContainsSubstring("imbalance before balancing") &&
                       !ContainsSubstring("Anything about memory") &&
                       !ContainsSubstring("peak_activation_bytes"));
}

TEST_CASE("a report shows what balancing changed, and predictions that were made", "[observe]") {
  const ScratchFolder folder;
  const auto line = [](int step, double predicted_ms, int held_rows) {
    return "{\"step\":" + std::to_string(step) +
           ",\"step_ms\":100,\"profile_step_ms\":" + std::to_string(2 * predicted_ms) +
           ",\"calibrated_step_ms\":" + std::to_string(predicted_ms) +
           ",\"predicted_step_ms\":" + std::to_string(predicted_ms) +
           ",\"imbalance_in_order\":" + std::to_string(step == 2 ? 2.5 : 3.5) +
           ",\"imbalance_planned\":1.5," + "\"held_rows\":" + std::to_string(held_rows) +
           ",\"activation_bytes\":2e6}\n";
  };
  write(folder / "metrics.jsonl", line(1, 0, 9) + line(2, 90, 4) + line(3, 110, 6));
  const auto run = read_run(folder.path()).value();
  CHECK(value_of(run, "profile_step_ms_median") == 200);
  CHECK(value_of(run, "calibrated_step_ms_median") == 100);
  CHECK(value_of(run, "imbalance_in_order_mean") == 3);
  CHECK(value_of(run, "imbalance_planned_mean") == 1.5);
  CHECK(value_of(run, "held_rows_max") == 9);
  CHECK(value_of(run, "activation_megabytes_max") == 2);
  const auto page = report_page(run, {}, "");
  CHECK_THAT(page,
             ContainsSubstring("before balancing") && !ContainsSubstring("predicted_step_ms"));
  CHECK(page.find(">by the profile<") < page.find(">calibrated<"));
  CHECK(page.find("Predicted by the profile") < page.find("Predicted with speeds"));
  // Zeros at every step: nothing was predicted.
  write(folder / "metrics.jsonl", line(1, 0, 0) + line(2, 0, 0));
  const auto none = read_run(folder.path()).value();
  CHECK(std::isnan(value_of(none, "profile_step_ms_median")));
  CHECK(std::isnan(value_of(none, "calibrated_step_ms_median")));
  CHECK_THAT(report_page(none, {}, ""), ContainsSubstring("Predicted times."));
  // A run from before the key had its present name.
  write(folder / "metrics.jsonl", "{\"step\":1,\"step_ms\":100,\"predicted_step_ms\":70}\n");
  CHECK(value_of(read_run(folder.path()).value(), "calibrated_step_ms_median") == 70);
}

TEST_CASE("a report tells how evenly each module group's replicas worked", "[observe]") {
  const ScratchFolder folder;
  const auto group = [](double drawn, double planned, double measured, double far) {
    return "{\"imbalance_drawn\":" + std::to_string(drawn) +
           ",\"imbalance_planned\":" + std::to_string(planned) +
           ",\"imbalance\":" + std::to_string(measured) +
           ",\"rows_between_nodes\":" + std::to_string(far) + "}";
  };
  std::string lines;
  for (int step = 1; step <= 3; ++step)
    lines +=
        "{\"step\":" + std::to_string(step) + ",\"step_ms\":100,\"phases\":{\"vision+audio\":" +
        group(2, 1.25, step == 3 ? 1.5 : 1.25, 0.25) + ",\"llm\":" + group(1, 1, 1, 0) + "}}\n";
  write(folder / "metrics.jsonl", lines);
  const auto run = read_run(folder.path()).value();
  CHECK(value_of(run, "phases.vision+audio.imbalance_drawn_mean") == 2);
  CHECK(value_of(run, "phases.vision+audio.imbalance_planned_mean") == 1.25);
  CHECK(value_of(run, "phases.vision+audio.imbalance_mean") == 1.375);  // Without the first step.
  CHECK(value_of(run, "phases.vision+audio.rows_between_nodes_percent_mean") == 25);
  // The llm has one replica, whose work is even whatever is planned.
  CHECK(std::isnan(value_of(run, "phases.llm.imbalance_mean")));
  CHECK(run.metrics.find("phases.llm.rows_between_nodes") == nullptr);
  const auto page = report_page(run, {}, "No timeline.");
  CHECK_THAT(page, ContainsSubstring("<h3>Imbalance of replicas: vision+audio") &&
                       ContainsSubstring("vision+audio: Imbalance of replicas, as planned") &&
                       !ContainsSubstring("Imbalance of replicas: llm") &&
                       !ContainsSubstring("imbalance_planned"));
}

TEST_CASE("a report tells how many steps were planned with an exchange", "[observe]") {
  const ScratchFolder folder;
  std::string lines;
  for (const auto* exchanged : {"true", "true", "false", "true", "false"})
    lines += "{\"step\":" + std::to_string(1 + std::count(lines.begin(), lines.end(), '\n')) +
             ",\"exchanged\":" + exchanged +
             ",\"phases\":{\"vision\":{\"imbalance\":1.5,\"exchanged\":true}}}\n";
  write(folder / "metrics.jsonl", lines);
  const auto run = read_run(folder.path()).value();
  CHECK(value_of(run, "exchanged_percent_mean") == 50);  // Without the first step.
  CHECK_THAT(report_page(run, {}, "No timeline."),
             ContainsSubstring("Steps planned with an exchange"));
  // Steps in which a phase was not are those that do not say so.
  CHECK(run.metrics.find("phases.vision.imbalance") != nullptr);
  CHECK(run.metrics.find("phases.vision.exchanged") == nullptr);
  // Where no encoder has several replicas nothing is told.
  write(folder / "metrics.jsonl", kMetrics);
  CHECK(std::isnan(value_of(read_run(folder.path()).value(), "exchanged_percent_mean")));
}

TEST_CASE("metrics that are missing, empty or damaged are refused", "[observe][errors]") {
  const ScratchFolder folder;
  CHECK(read_run(folder.path()).error().code == Errc::not_found);
  write(folder / "metrics.jsonl", "");
  CHECK_THAT(read_run(folder.path()).error().message, ContainsSubstring("no step has ended"));
  write(folder / "metrics.jsonl", "{\"step\":1}\nhello\n{\"step\":2}\n");
  const auto damaged = read_run(folder.path());
  CHECK(damaged.error().code == Errc::bad_data);
  CHECK_THAT(damaged.error().where, ContainsSubstring("metrics.jsonl:2"));
}

}  // namespace
}  // namespace troupe::observe
