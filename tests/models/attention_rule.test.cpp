// Which rows of a sample see each other in the llm, by `modules.NAME.attention`.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include <optional>
#include <string>
#include <vector>

#include "kernels/activations.hpp"
#include "kernels/bitfield_attention.hpp"
#include "kernels/deferred_gradients.hpp"
#include "kernels/dense_attention.hpp"
#include "kernels/linear.hpp"
#include "kernels/norms.hpp"
#include "kernels/rotary.hpp"
#include "models/text_batch.hpp"
#include "tests/kernels/gradient_check.hpp"
#include "tests/models/chain.hpp"

// After LibTorch's headers, some of which use the macros that this one removes.
#include "tests/torch_catch.hpp"

#include <catch2/generators/catch_generators.hpp>

using namespace troupe;
using namespace troupe::models;
using kernels::largest_difference;
using kernels::values;

namespace {

using Samples = std::vector<TokenSample>;

// Text, a picture of two rows, at once another of two, text; then a sample of text, and one that
// begins with a picture of three.
const Samples kSamples{{6, {{1, 3}, {3, 5}}}, {3, {}}, {5, {{0, 3}}}};

std::vector<ModuleConfig> model_of(AttentionRule rule) {
  auto modules = small_model();
  modules.back().attention = rule;
  return modules;
}

Chain llm_of(AttentionRule rule, at::ScalarType dtype = at::kDouble) {
  const auto modules = model_of(rule);
  return make_chain(modules.back(), modules, {.dtype = dtype, .device = at::kCPU});
}

std::int64_t row_count(const Samples& samples) {
  std::int64_t rows = 0;
  for (const auto& sample : samples) rows += sample.tokens;
  return rows;
}

// Samples with rows of media and labels for all of them.
PackedBatch batch_of(const Samples& samples, AttentionRule rule, double seed = 1) {
  auto batch = text_batch(samples, rule).value();
  const auto rows = row_count(samples);
  batch.input = values({rows}, seed).abs().mul(36).to(at::kLong);
  batch.labels = batch.input;
  std::int64_t begin = 0;
  for (const auto& sample : samples) {
    for (const auto& span : sample.spans)
      batch.media.push_back({at::arange(begin + span.begin, begin + span.end, at::kLong),
                             values({span.end - span.begin, 24}, seed + 1)});
    begin += sample.tokens;
  }
  return batch;
}

// One line per row that a block hands on: '#' where it depends on the row that came in.
std::vector<std::string> picture(AttentionRule rule) {
  const auto chain = llm_of(rule);
  const auto batch = text_batch(kSamples, rule).value();
  const auto rows = values({row_count(kSamples), 24}).set_requires_grad(true);
  const auto out = chain.layers[1]->forward(rows, batch);
  std::vector<std::string> lines;
  for (std::int64_t row = 0; row < out.size(0); ++row) {
    rows.mutable_grad() = at::Tensor();
    out[row].sum().backward({}, /*retain_graph=*/true);
    const auto sizes = rows.grad().abs().sum(1);
    lines.emplace_back();
    for (std::int64_t from = 0; from < out.size(0); ++from)
      lines.back() += sizes[from].item<double>() > 0 ? '#' : '.';
  }
  return lines;
}

// A block by its definition, with attention that keeps every score in memory.
at::Tensor block_by_definition(Layer& layer, const at::Tensor& rows, const PackedBatch& batch) {
  const auto weight = [&](int index) { return layer.parameters()[std::size_t(index)].value; };
  const auto table = kernels::text_rotary(batch.positions, 6, 10000, at::kDouble, at::kCPU);
  const auto normed = kernels::rms_norm(rows, weight(7), 1e-5);
  const auto heads = [&](int index) {
    return kernels::linear(normed, weight(index)).view({rows.size(0), -1, 6});
  };
  const auto seen =
      kernels::dense_attention(kernels::rotate(heads(0), table), kernels::rotate(heads(1), table),
                               heads(2), batch.mask->mask());
  const auto attended = rows.add(kernels::linear(seen.flatten(1), weight(3)));
  const auto inner = kernels::rms_norm(attended, weight(8), 1e-5);
  return attended.add(kernels::linear(
      kernels::swiglu(kernels::linear(inner, weight(4)), kernels::linear(inner, weight(5))),
      weight(6)));
}

}  // namespace

TEST_CASE("by modality a picture sees itself alone, and text all that came before it", "[models]") {
  CHECK(picture(AttentionRule::modality) ==
        std::vector<std::string>{"#.............",  //
                                 ".##...........",  // Its first row sees its last.
                                 ".##...........",  //
                                 "...##.........",  // Another picture, though side by side.
                                 "...##.........",  //
                                 "######........",  //
                                 "......#.......",  //
                                 "......##......",  //
                                 "......###.....",  //
                                 ".........###..",  //
                                 ".........###..",  //
                                 ".........###..",  //
                                 ".........####.",  //
                                 ".........#####"});
}

TEST_CASE("causally all rows see all that came before them", "[models]") {
  CHECK(picture(AttentionRule::causal)[3] == "####..........");
  CHECK(picture(AttentionRule::causal)[10] == ".........##...");
}

TEST_CASE("a block by modality equals its definition, rows and gradients", "[models]") {
  const auto chain = llm_of(AttentionRule::modality);
  auto& block = *chain.layers[1];
  const auto batch = text_batch(kSamples, AttentionRule::modality).value();
  std::vector<at::Tensor> outputs, gradients;
  std::vector<std::vector<at::Tensor>> weights;
  for (const bool definition : {true, false}) {
    const auto rows = values({row_count(kSamples), 24}).set_requires_grad(true);
    const auto out =
        definition ? block_by_definition(block, rows, batch) : block.forward(rows, batch);
    out.mul(values({rows.size(0), 24}, 7)).sum().backward();
    outputs.push_back(out.detach());
    gradients.push_back(rows.grad());
    auto& list = weights.emplace_back();
    for (auto& parameter : block.parameters()) {
      list.push_back(parameter.value.grad());
      parameter.value.mutable_grad() = at::Tensor();
    }
  }
  CHECK(largest_difference(outputs[0], outputs[1]) < 1e-12);
  CHECK(largest_difference(gradients[0], gradients[1]) < 1e-11);
  for (std::size_t i = 0; i < weights[0].size(); ++i)
    CHECK(largest_difference(weights[0][i], weights[1][i]) < 1e-11);
}

TEST_CASE("later text changes no bit of what stands before it", "[models]") {
  const auto rule = GENERATE(AttentionRule::causal, AttentionRule::modality);
  const auto chain = llm_of(rule);
  const auto rows_with = [&](std::int64_t token, bool changed) {
    auto batch = batch_of(kSamples, rule);
    if (changed) batch.input[token].fill_((batch.input[token].item<std::int64_t>() + 1) % 37);
    at::Tensor rows;
    for (std::size_t i = 0; i + 1 < chain.layers.size(); ++i)
      rows = chain.layers[i]->forward(rows, batch);
    return rows.detach();
  };
  for (const std::int64_t token : {5, 8, 12}) {
    CAPTURE(token);
    const auto before = rows_with(token, false), after = rows_with(token, true);
    CHECK(before.narrow(0, 0, token).equal(after.narrow(0, 0, token)));
    CHECK_FALSE(before[token].equal(after[token]));
  }
  // Text before pictures: their rows see it causally, and do not by modality.
  const auto before = rows_with(0, false), after = rows_with(0, true);
  CHECK(before.narrow(0, 1, 4).equal(after.narrow(0, 1, 4)) == (rule == AttentionRule::modality));
  CHECK_FALSE(before[5].equal(after[5]));
}

TEST_CASE("by modality packed samples give what each gives alone, in every dtype",
          "[models][property]") {
  // Over several tiles of 128, whose borders pass through pictures and samples.
  const Samples samples{{150, {{3, 90}, {90, 140}}}, {40, {}}, {1, {}}, {300, {{10, 200}}}};
  const auto [dtype, tolerance] = GENERATE(table<at::ScalarType, double>(
      {{at::kDouble, 1e-11}, {at::kFloat, 2e-4}, {at::kBFloat16, 0.2}}));
  const auto chain = llm_of(AttentionRule::modality, dtype);
  auto together = batch_of(samples, AttentionRule::modality);
  for (auto& media : together.media) media.rows = media.rows.to(dtype);
  const auto packed = chain.forward(together).detach();
  CHECK(packed.equal(chain.forward(together).detach()));
  std::vector<at::Tensor> alone;
  std::size_t medium = 0;
  std::int64_t begin = 0;
  for (const auto& sample : samples) {
    auto batch = text_batch({&sample, 1}, AttentionRule::modality).value();
    batch.input = together.input.narrow(0, begin, sample.tokens);
    batch.labels = batch.input;
    for (const auto& span : sample.spans)
      batch.media.push_back(
          {at::arange(span.begin, span.end, at::kLong), together.media[medium++].rows});
    alone.push_back(chain.forward(batch).detach());
    begin += sample.tokens;
  }
  const auto scale = packed.abs().max().item<double>();
  CHECK(largest_difference(packed.to(at::kDouble), at::cat(alone).to(at::kDouble)) <
        tolerance * scale);
}

TEST_CASE("by modality a split backward has the bits of a whole one", "[models]") {
  std::vector<std::vector<at::Tensor>> gradients;
  for (const bool defer : {false, true}) {
    const auto chain = llm_of(AttentionRule::modality, at::kFloat);
    auto batch = batch_of(kSamples, AttentionRule::modality);
    for (auto& media : batch.media) media.rows = media.rows.to(at::kFloat).set_requires_grad(true);
    const auto loss = chain.forward(batch).sum();
    const auto queue = std::make_shared<kernels::DeferredGradients>();
    {
      std::optional<kernels::DeferWeightGradients> guard;
      if (defer) guard.emplace(queue);
      loss.backward();
    }
    {
      const at::NoGradGuard no_grad;
      queue->run();
    }
    auto& list = gradients.emplace_back();
    for (const auto& parameter : chain.parameters()) list.push_back(parameter.value.grad());
    for (const auto& media : batch.media) list.push_back(media.rows.grad());
  }
  for (std::size_t i = 0; i < gradients[0].size(); ++i)
    CHECK(gradients[0][i].equal(gradients[1][i]));
}

TEST_CASE("rows are turned by the positions of the batch", "[models]") {
  const auto batch = text_batch(kSamples, AttentionRule::causal).value();
  CHECK(batch.segments == std::vector<std::int64_t>{6, 3, 5});
  CHECK(batch.positions == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 0, 1, 2, 0, 1, 2, 3, 4});
  CHECK(batch.mask == nullptr);
  const auto chain = llm_of(AttentionRule::causal);
  const auto rows = values({14, 24});
  const auto at_positions = [&](std::vector<std::int64_t> positions) {
    auto moved = text_batch(kSamples, AttentionRule::causal).value();
    moved.positions = std::move(positions);
    return chain.layers[1]->forward(rows, moved).detach();
  };
  const auto expected = chain.layers[1]->forward(rows, batch).detach();
  // What counts is the distance: a sample elsewhere gives the same, up to rounding.
  const auto shifted = at_positions({7, 8, 9, 10, 11, 12, 0, 1, 2, 0, 1, 2, 3, 4});
  CHECK(largest_difference(shifted, expected) < 1e-12);
  const auto spread = at_positions({0, 2, 4, 6, 8, 10, 0, 1, 2, 0, 1, 2, 3, 4});
  CHECK(largest_difference(spread, expected) > 1e-3);
  CHECK(spread.narrow(0, 6, 8).equal(expected.narrow(0, 6, 8)));
  CHECK_THROWS_AS(at_positions({0, 1, 2}), c10::Error);
}

TEST_CASE("a batch of the other rule is refused", "[models][errors]") {
  const auto rows = values({14, 24});
  for (const auto rule : {AttentionRule::causal, AttentionRule::modality}) {
    const auto other =
        rule == AttentionRule::causal ? AttentionRule::modality : AttentionRule::causal;
    const auto batch = text_batch(kSamples, other).value();
    CHECK_THROWS_AS(llm_of(rule).layers[1]->forward(rows, batch), c10::Error);
  }
  const auto crossed = text_batch(Samples{{3, {{2, 4}}}}, AttentionRule::modality);
  REQUIRE_FALSE(crossed.ok());
  CHECK(crossed.error().code == Errc::invalid_argument);
}

TEST_CASE("the graph says by which rule the llm attends, and who cannot is refused",
          "[models][errors]") {
  auto modules = model_of(AttentionRule::modality);
  const auto graph = build_graph(modules).value();
  CHECK(graph.at(graph.llm()).attention == AttentionRule::modality);
  CHECK(build_graph(small_model()).value().modules.back().attention == AttentionRule::causal);
  modules[0].attention = AttentionRule::modality;
  const auto refused = build_graph(modules);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().where == "modules.vision.attention");
  CHECK(refused.error().message.find("'qwen2-vl'") != std::string::npos);
}
