#include "tests/torch_catch.hpp"

#include "runtime/state/compare.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <fstream>
#include <limits>

#include "tests/support/scratch_folder.hpp"

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using troupe::testing::ScratchFolder;

namespace troupe::state {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor doubles(std::vector<double> values) { return at::tensor(values, at::kDouble); }

TEST_CASE("differences by hand in both norms", "[state]") {
  // a = (3, -4), b = (3, -3): max 1 / 4; l2 1 / 5.
  const auto a = doubles({3, -4}), b = doubles({3, -3});
  CHECK(tensor_difference(a, b, DifferenceNorm::max) == 0.25);
  CHECK(tensor_difference(a, b, DifferenceNorm::l2) == 0.2);
  // Relative to the first: b's largest is 3.
  CHECK_THAT(tensor_difference(b, a, DifferenceNorm::max), WithinRel(1.0 / 3, 1e-15));
}

TEST_CASE("tensors near zero are compared against the floor", "[state]") {
  CHECK_THAT(tensor_difference(doubles({0}), doubles({1e-10}), DifferenceNorm::max),
             WithinRel(1e-2, 1e-12));
}

TEST_CASE("a NaN on one side is an infinite difference, on both sides none", "[state]") {
  for (const auto norm : {DifferenceNorm::max, DifferenceNorm::l2}) {
    CHECK(tensor_difference(doubles({1, kNan}), doubles({1, 2}), norm) == kInfinity);
    CHECK(tensor_difference(doubles({1, 2}), doubles({1, kInfinity}), norm) == kInfinity);
    CHECK(tensor_difference(doubles({1, kNan}), doubles({1, kNan}), norm) == 0);
    CHECK(tensor_difference(doubles({1, kInfinity}), doubles({2, kInfinity}), norm) == 1);
  }
}

TEST_CASE("the five worst tensors and every module are named", "[state]") {
  TensorMap a, b;
  for (int i = 0; i < 7; ++i) {
    const auto name = (i % 2 == 0 ? "llm.layers." : "vision.blocks.") + std::to_string(i);
    a[name] = at::ones({2}, at::kDouble);
    b[name] = at::full({2}, 1 + i * 0.125, at::kDouble);
  }
  const auto compared = compare_tensors(a, b, DifferenceNorm::max, "parameter", "A", "B");
  REQUIRE(compared.ok());
  const auto& result = compared.value();
  CHECK(result.tensor_count == 7);
  CHECK(result.largest == 0.75);
  CHECK_FALSE(result.equal_to_the_bit);
  REQUIRE(result.worst.size() == 5);
  // In parentheses: c10 offers a printer for vectors that knows no such elements.
  CHECK((result.worst[0] == TensorDifference{"llm.layers.6", 0.75}));
  CHECK((result.worst[4] == TensorDifference{"llm.layers.2", 0.25}));
  CHECK((result.modules == std::vector<TensorDifference>{{"llm", 0.75}, {"vision", 0.625}}));
}

TEST_CASE("equal to the bit needs equal types and signs of zero", "[state]") {
  const auto same = [](const at::Tensor& a, const at::Tensor& b) {
    return compare_tensors({{"w", a}}, {{"w", b}}, DifferenceNorm::max, "parameter", "A", "B")
        .value()
        .equal_to_the_bit;
  };
  CHECK(same(doubles({1, kNan}), doubles({1, kNan})));
  CHECK_FALSE(same(doubles({0.0}), doubles({-0.0})));
  CHECK_FALSE(same(doubles({1}), doubles({1}).to(at::kFloat)));
}

TEST_CASE("parameters that do not match are named with their side", "[state][errors]") {
  const TensorMap a{{"x", at::ones({2})}, {"y", at::ones({2, 3})}};
  const TensorMap b{{"y", at::ones({3, 2})}, {"z", at::ones({1})}};
  const auto compared = compare_tensors(a, b, DifferenceNorm::max, "parameter", "A", "B");
  REQUIRE_FALSE(compared.ok());
  CHECK(compared.error().code == Errc::invalid_argument);
  CHECK(compared.error().message ==
        "3 parameters do not match: 'x' is only in A; 'y' has shape [2, 3] in A and [3, 2] in B; "
        "'z' is only in B");
}

// A run folder with one parameter and two steps.
void make_run(const std::filesystem::path& run, double weight, const std::string& metrics) {
  REQUIRE(write_safetensors(run / "model/model.safetensors",
                            {{"llm.weight", at::full({2}, weight, at::kDouble)}})
              .ok());
  std::ofstream(run / "metrics.jsonl") << metrics;
}

constexpr const char* kTwoSteps = "{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":2}\n";

TEST_CASE("two runs are compared by parameters, losses and gradients", "[state]") {
  const ScratchFolder folder;
  make_run(folder / "a", 8, kTwoSteps);
  make_run(folder / "b", 9, "{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":3}\n{\"step\":3,");
  auto compared = compare_runs(folder / "a", folder / "b", DifferenceNorm::max);
  REQUIRE(compared.ok());
  CHECK(compared.value().parameters.largest == 0.125);
  REQUIRE(compared.value().losses);
  CHECK(compared.value().losses->step_count == 2);
  CHECK(compared.value().losses->unmatched_steps == 0);
  CHECK(compared.value().losses->largest == 0.5);
  CHECK(compared.value().losses->largest_at_step == 2);
  CHECK_FALSE(compared.value().gradients);
  REQUIRE(compared.value().notes.size() == 1);
  CHECK_THAT(compared.value().notes[0], ContainsSubstring("train.dump_gradients"));

  for (const char* run : {"a", "b"})
    REQUIRE(write_safetensors(folder / run / "gradients/step-1.safetensors",
                              {{"llm.weight", at::ones({2})}})
                .ok());
  compared = compare_runs(folder / "a", folder / "b", DifferenceNorm::max);
  REQUIRE(compared.ok());
  REQUIRE(compared.value().gradients);
  CHECK(compared.value().gradients->equal_to_the_bit);
  CHECK(compared.value().notes.empty());
}

TEST_CASE("a model in several files is one model", "[state]") {
  const ScratchFolder folder;
  REQUIRE(write_safetensors(folder / "m/1.safetensors", {{"a", at::ones({1})}}).ok());
  REQUIRE(write_safetensors(folder / "m/2.safetensors", {{"b", at::ones({1})}}).ok());
  CHECK(read_model(folder / "m").value().size() == 2);
  REQUIRE(write_safetensors(folder / "m/3.safetensors", {{"a", at::ones({1})}}).ok());
  const auto twice = read_model(folder / "m");
  REQUIRE_FALSE(twice.ok());
  CHECK(twice.error().code == Errc::bad_data);
}

TEST_CASE("runs that cannot be compared say what is missing", "[state][errors]") {
  const ScratchFolder folder;
  make_run(folder / "a", 1, kTwoSteps);
  const auto missing = compare_runs(folder / "a", folder / "none", DifferenceNorm::max);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == Errc::not_found);
  CHECK_THAT(missing.error().where, ContainsSubstring("none"));
  std::filesystem::create_directories(folder / "unfinished");
  const auto unfinished = compare_runs(folder / "unfinished", folder / "a", DifferenceNorm::max);
  REQUIRE_FALSE(unfinished.ok());
  CHECK_THAT(unfinished.error().message, ContainsSubstring("no final parameters"));
}

TEST_CASE("loss curves: replays count last, null is compared, damage is located",
          "[state][errors]") {
  const ScratchFolder folder;
  const auto losses = [&](const std::string& text) {
    std::ofstream(folder / "b.jsonl") << text;
    return compare_losses(folder / "a.jsonl", folder / "b.jsonl");
  };
  std::ofstream(folder / "a.jsonl") << kTwoSteps;
  CHECK(losses("{\"step\":1,\"loss\":9}\n{\"step\":1,\"loss\":4}\n").value().largest == 0);
  CHECK(losses("{\"step\":1,\"loss\":4}\n").value().unmatched_steps == 1);
  CHECK(losses("{\"step\":2,\"loss\":null}\n").value().largest == kInfinity);
  CHECK_THAT(losses("{\"step\":1,\"loss\":4}\nxx\n").error().where, ContainsSubstring("b.jsonl:2"));
  CHECK_THAT(losses("{\"loss\":4}\n").error().message, ContainsSubstring("`step`"));
  CHECK_THAT(losses("{\"step\":1}\n").error().message, ContainsSubstring("`loss`"));
  CHECK_THAT(losses("{\"step\":9,\"loss\":4}\n").error().message, ContainsSubstring("no step"));
  CHECK(compare_losses(folder / "a.jsonl", folder / "none").error().code == Errc::not_found);
}

}  // namespace
}  // namespace troupe::state
