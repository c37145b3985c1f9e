#include "runtime/observe/step_metrics.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

namespace troupe::observe {
namespace {

using Json = nlohmann::json;

StepMetrics example() {
  StepMetrics metrics;
  metrics.step = 12;
  metrics.loss = 1.0 / 3;
  metrics.lr = 3e-4;
  metrics.grad_norm = 1.25;
  metrics.samples = 16;
  metrics.tokens = 6000;
  metrics.trained_tokens = 800;
  metrics.step_ms = 500;
  metrics.profile_step_ms = 450;
  metrics.calibrated_step_ms = 480;
  metrics.plan_ms = 2;
  metrics.bubble = 0.234;
  metrics.imbalance = 1.5;
  metrics.nodes = 4;
  metrics.epoch_number = 1;
  return metrics;
}

TEST_CASE("host memory is told of by steps that had something there", "[observe]") {
  auto metrics = example();
  CHECK_FALSE(Json::parse(metrics_line(metrics)).contains("offloaded_bytes"));
  metrics.offloaded_bytes = Bytes{40};
  CHECK(Json::parse(metrics_line(metrics))["moved_to_host_bytes"] == 0);  // It was discarded.
  metrics.moved_to_host_bytes = Bytes{100};
  const auto json = Json::parse(metrics_line(metrics));
  CHECK(json["offloaded_bytes"] == 40);
  CHECK(json["moved_to_host_bytes"] == 100);
}

TEST_CASE("the metrics line has every key of the interface and every bit of the loss",
          "[observe]") {
  const auto text = metrics_line(example());
  CHECK(text.find('\n') == std::string::npos);
  const auto json = Json::parse(text);
  for (const char* key : {"step",
                          "loss",
                          "lr",
                          "grad_norm",
                          "samples",
                          "tokens",
                          "trained_tokens",
                          "step_ms",
                          "plan_ms",
                          "plan_wait_ms",
                          "bubble",
                          "imbalance",
                          "data_wait_ms",
                          "compute_ms",
                          "update_ms",
                          "transfer_ms",
                          "wait_ms",
                          "offload_ms",
                          "nodes",
                          "epoch_number",
                          "profile_step_ms",
                          "calibrated_step_ms",
                          "predicted_step_ms",
                          "imbalance_in_order",
                          "imbalance_planned",
                          "deferred_samples",
                          "held_rows",
                          "held_bytes",
                          "activation_bytes",
                          "promised_activation_bytes",
                          "activations_over_promise",
                          "corrected_shapes",
                          "skipped_steps",
                          "bad_samples",
                          "checkpoint_stall_ms",
                          "checkpoint_ms",
                          "generation"})
    CHECK(json.contains(key));
  CHECK(json["loss"].get<double>() == 1.0 / 3);
  CHECK(json["tokens_per_s"] == 12000);
  CHECK(json["profile_step_ms"] == 450);
  CHECK(json["calibrated_step_ms"] == 480);
  CHECK(json["predicted_step_ms"] == 480);  // The older name of the line above.
  CHECK_FALSE(json.contains("skipped"));
  CHECK_FALSE(json.contains("phases"));
}

TEST_CASE("whether a step was exchanged is told where it could be", "[observe]") {
  auto metrics = example();
  CHECK_FALSE(Json::parse(metrics_line(metrics)).contains("exchanged"));
  metrics.can_exchange = true;
  CHECK(Json::parse(metrics_line(metrics))["exchanged"] == false);
  metrics.exchanged = true;
  CHECK(Json::parse(metrics_line(metrics))["exchanged"] == true);
}

TEST_CASE("how even each phase was stands under the name of its module group", "[observe]") {
  auto metrics = example();
  metrics.phases = {{"vision+audio", 1.75, 1.25, 1, 1.5, 0.25, 0.125}, {"llm", 2, 1, 1, 1.125}};
  const auto json = Json::parse(metrics_line(metrics));
  CHECK(json["phases"].size() == 2);
  CHECK(json["phases"]["vision+audio"] == Json{{"imbalance_drawn", 1.75},
                                               {"imbalance_planned", 1.25},
                                               {"imbalance_bound", 1},
                                               {"imbalance", 1.5},
                                               {"rows_between_nodes", 0.25},
                                               {"rows_between_nodes_bound", 0.125}});
  CHECK(json["phases"]["llm"]["imbalance"] == 1.125);
  metrics.phases[0].exchanged = true;
  const Json exchanged = Json::parse(metrics_line(metrics));
  CHECK(exchanged["phases"]["vision+audio"]["exchanged"] == true);
  CHECK_FALSE(exchanged["phases"]["llm"].contains("exchanged"));
}

TEST_CASE("throughput is of a device, and a share only of a peak that is known", "[observe]") {
  auto metrics = example();  // Half a second.
  CHECK_FALSE(Json::parse(metrics_line(metrics)).contains("tflops_per_device"));
  // 6 x 10^12 in 0.5 s on 4 devices: 3 TFLOP/s each, of 8.
  metrics.work = {6e12, 4, 0};
  auto json = Json::parse(metrics_line(metrics));
  CHECK(json["tflops_per_device"] == 3);
  CHECK_FALSE(json.contains("mfu"));
  CHECK(step_line(metrics, {}).ends_with("  bubble 23 %  tflops 3"));
  metrics.work.device_tflops = 8;
  json = Json::parse(metrics_line(metrics));
  CHECK(json["mfu"] == 0.375);
  CHECK(step_line(metrics, {}).ends_with("  tflops 3  mfu 37.5 %"));
  // The share is what people ask for last of all.
  CHECK(step_line(metrics, {0, 0, 60}).ends_with("  500 ms  mfu 37.5 %"));
}

TEST_CASE("a loss that is not a number is null, and the reason is there", "[observe]") {
  auto metrics = example();
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.skipped = "no trained tokens";
  const auto json = Json::parse(metrics_line(metrics));
  CHECK(json["loss"].is_null());
  CHECK(json["skipped"] == "no trained tokens");
  CHECK(step_line(metrics, {100, 0}) == "step 12/100  skipped: no trained tokens");
  CHECK(step_line(metrics, {100, 4}) == "step 12/100  epoch 3  skipped: no trained tokens");
}

TEST_CASE("ids stay in order and survive odd bytes", "[observe]") {
  const std::vector<std::string> ids{"b", "a\"\n", "\xff"};
  const auto text = samples_line(3, ids);
  CHECK(text.find('\n') == std::string::npos);
  const auto json = Json::parse(text);
  CHECK(json["step"] == 3);
  CHECK(json["ids"][0] == "b");
  CHECK(json["ids"][1] == "a\"\n");
  CHECK(json["ids"].size() == 3);
}

TEST_CASE("the step line is short, and waits show only when there are some", "[observe]") {
  auto metrics = example();
  CHECK(step_line(metrics, {100, 0}) ==
        "step 12/100  loss 0.3333  lr 3.0e-04  grad 1.25  12k tok/s  500 ms  bubble 23 %");
  metrics.data_wait_ms = 40;
  metrics.plan_wait_ms = 7;
  const auto line = step_line(metrics, {});
  CHECK(line.starts_with("step 12  loss"));
  CHECK(line.ends_with("data wait 40 ms  plan wait 7 ms"));
}

TEST_CASE("the step line says when the job will end, where there is room", "[observe]") {
  auto metrics = example();
  StepLineOptions options{100, 0};
  options.left_s = 187;
  CHECK(step_line(metrics, options).ends_with("  bubble 23 %  eta 3:07"));
  options.left_s = 0;
  CHECK(step_line(metrics, options).ends_with("  bubble 23 %"));
  // A terminal's bar tells it too.
  options.left_s = 187;
  options.columns = 80;
  CHECK(step_line(metrics, options)
            .ends_with("  lr 3.0e-04  grad 1.25  12k tok/s  500 ms  bubble 23 %"));
}

TEST_CASE("the step line says the epoch of its batch", "[observe]") {
  // Three steps take all samples once: 1, 2, 3 | 4, 5, 6 | 7 ...
  auto metrics = example();
  for (const auto& [step, epoch] : {std::pair{1, 1}, {3, 1}, {4, 2}, {6, 2}, {7, 3}}) {
    metrics.step = step;
    const std::string begin =
        "step " + std::to_string(step) + "/9  epoch " + std::to_string(epoch) + "  loss";
    CHECK(step_line(metrics, {9, 3}).starts_with(begin));
  }
}

TEST_CASE("the step line makes room for what matters most", "[observe]") {
  // Of a job of a thousand steps; `12:34:56 [head] ` comes before it.
  auto metrics = example();
  metrics.step = 1000;
  metrics.loss = 5.8417;
  metrics.grad_norm = 35.2;
  metrics.tokens = 1123;
  metrics.step_ms = 397;
  CHECK(step_line(metrics, {1000, 3}) ==
        "step 1000/1000  epoch 334  loss 5.8417  lr 3.0e-04  grad 35.2  2.83k tok/s  397 ms  "
        "bubble 23 %");
  CHECK(step_line(metrics, {1000, 3, 100 - 16}) ==
        "step 1000/1000  epoch 334  loss 5.8417  grad 35.2  2.83k tok/s  397 ms  bubble 23 %");
  CHECK(step_line(metrics, {1000, 3, 80 - 16}) ==
        "step 1000/1000  epoch 334  loss 5.8417  2.83k tok/s  397 ms");
  // A wait is news: it stays, and so does the line where nothing more can go.
  metrics.data_wait_ms = 40;
  CHECK(step_line(metrics, {1000, 3, 20}).ends_with("  397 ms  data wait 40 ms"));
}

TEST_CASE("the bar shows share, pace and what is left", "[observe]") {
  // 30 of 120 steps at 2 s: a quarter filled, 90 x 2 s = 3 minutes left.
  CHECK(progress_bar(30, 120, 2000, 80) ==
        "[##########..............................]  30/120  2.00 s/step  3:00 left");
  CHECK(progress_bar(1, 2, 4000, 10) == "1/2  4.00 ");
  CHECK(progress_bar(3700, 7400, 1000, 60).ends_with("1:01:40 left"));
}

TEST_CASE("the bar never exceeds its width nor its share", "[observe][property]") {
  const auto width = GENERATE(range(0, 120, 7));
  const auto step = GENERATE(0, 1, 50, 99, 100, 101);
  const auto bar = progress_bar(step, 100, 1234, width);
  CHECK(bar.size() <= static_cast<std::size_t>(width));
  if (bar.find('[') != std::string::npos) CHECK((bar.find('.') < bar.find(']')) == (step < 100));
}

TEST_CASE("what layers add to the loss stands by its name", "[observe]") {
  StepMetrics metrics;
  CHECK_FALSE(Json::parse(metrics_line(metrics)).contains("auxiliary_losses"));
  metrics.auxiliary_losses = {{"llm.balance", 0.5}, {"vision.z", 0.25}};
  const auto losses = Json::parse(metrics_line(metrics))["auxiliary_losses"];
  CHECK(losses.size() == 2);
  CHECK(losses["llm.balance"] == 0.5);
  CHECK(losses["vision.z"] == 0.25);
}

struct FieldCounter {
  using result_type = int;
  template <class... Fields>
  int operator()(Fields&...) {
    return static_cast<int>(sizeof...(Fields));
  }
};

TEST_CASE("every field of the metrics travels", "[observe]") {
  FieldCounter counter;
  StepMetrics metrics;
  CHECK(inspect(counter, metrics) == 39);
}

}  // namespace
}  // namespace troupe::observe
