#include "tests/bench/ablation_ranks.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <map>

using namespace troupe;
using namespace troupe::bench;

namespace {

constexpr std::size_t kRanks = 16, kMiniBatch = 24;  // Two nodes.

nlohmann::json table() {
  std::ifstream file("experiments/orchmllm/section-8.json");
  return nlohmann::json::parse(file);
}

/// By name, of the first model of the paper.
std::map<std::string, AblatedStep> steps(std::uint64_t seed) {
  const auto inputs = table();
  const auto costs = paper_costs("mllm-10b", inputs);
  REQUIRE(costs.ok());
  const auto ranks = AblationRanks::create(
      costs.value(), inputs, inputs.at("models").at("mllm-10b"), kRanks, kMiniBatch, seed);
  REQUIRE(ranks.ok());
  std::map<std::string, AblatedStep> found;
  for (const Ablation& ablation : ablations()) {
    const auto step = ranks.value().step(ablation);
    REQUIRE(step.ok());
    found[ablation.name] = step.value();
  }
  return found;
}

}  // namespace

TEST_CASE("Ablations leave out what they name", "[bench]") {
  const auto found = steps(0);

  const AblatedStep& all = found.at("all");
  CHECK(found.size() == ablations().size());
  CHECK(all.step_ms < found.at("no phase balanced").step_ms);
  CHECK(all.step_ms < found.at("LLM alone").step_ms);
  CHECK(all.step_ms < found.at("vision alone").step_ms);
  CHECK(all.step_ms < found.at("audio alone").step_ms);
  // Rows that pass who drew the sample are sent twice.
  CHECK(all.step_ms < found.at("all, composition off").step_ms);
  // Of two nodes about half of the rows are wanted on the other one where nobody looks.
  const AblatedStep& anywhere = found.at("all, node-wise off");
  CHECK(anywhere.vision_far_rows > 0.25);
  CHECK(all.vision_far_rows < anywhere.vision_far_rows / 2);
  CHECK(all.audio_far_rows < anywhere.audio_far_rows);
  // Encoders that are not balanced work where the sample was drawn and is trained.
  CHECK(found.at("no phase balanced").vision_far_rows == 0);
}

TEST_CASE("Utilization of even ranks is that of the device", "[bench]") {
  const auto first = steps(1), again = steps(1);

  // 0.6 of the peak is what layers attain; nothing computes faster.
  for (const auto& [name, step] : first) {
    CAPTURE(name);
    CHECK(step.utilization > 0);
    CHECK(step.utilization < 60);
    CHECK(step.step_ms == again.at(name).step_ms);
  }
  CHECK(first.at("all").utilization > 50);
}
