// What every family promises: packing, borders between layers and freezing never change the result.

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <numeric>

#include "kernels/deferred_gradients.hpp"
#include "kernels/norms.hpp"
#include "kernels/rotary.hpp"
#include "models/initial_value.hpp"
#include "models/llama_logits.hpp"
#include "models/text_batch.hpp"
#include "tests/models/chain.hpp"

// After LibTorch's headers, some of which use the macros that this one removes.
#include "tests/torch_catch.hpp"

using namespace troupe;
using namespace troupe::models;

namespace {

// One item of a module's input: an image, an audio window or a sample.
struct Item {
  std::int64_t segment = 0, input_segment = 0;
  GridSize grid;
  at::Tensor input, labels, media_positions, media_rows;
};

at::Tensor wave(std::vector<std::int64_t> shape, double seed) {
  std::int64_t count = 1;
  for (const auto size : shape) count *= size;
  return at::arange(count, at::kDouble)
      .add(seed)
      .mul(12.9898)
      .sin()
      .mul(43758.5453)
      .frac()
      .view(shape);
}

std::vector<Item> items_of(const std::string& module) {
  std::vector<Item> items;
  double seed = 1;
  if (module == "vision")
    for (const auto grid : {GridSize{2, 4}, GridSize{2, 2}, GridSize{6, 4}, GridSize{2, 4}})
      items.push_back({grid.height * grid.width,
                       0,
                       grid,
                       wave({grid.height * grid.width, 96}, seed++),
                       {},
                       {},
                       {}});
  if (module == "audio")
    for (const std::int64_t frames : {13, 1, 40, 13})
      items.push_back({(frames + 1) / 2, frames, {}, wave({frames, 8}, seed++), {}, {}, {}});
  if (module == "llm")
    for (const std::int64_t tokens : {9, 1, 20, 5}) {
      Item item{tokens, 0, {}, {}, {}, {}, {}};
      item.input = wave({tokens}, seed).abs().mul(37).to(at::kLong);
      item.labels =
          at::where(wave({tokens}, seed).gt(0), item.input, at::full({tokens}, -100, at::kLong));
      if (tokens > 4) item.media_positions = at::arange(1, 4, at::kLong);
      if (tokens > 4) item.media_rows = wave({3, 24}, seed);
      items.push_back(item);
      ++seed;
    }
  return items;
}

PackedBatch pack(const std::vector<Item>& items, at::ScalarType dtype,
                 AttentionRule rule = AttentionRule::causal) {
  std::vector<TokenSample> samples;
  for (const auto& item : items) {
    samples.push_back({item.segment, {}});
    if (item.media_rows.defined()) samples.back().spans = {{1, 4}};
  }
  auto batch = text_batch(samples, rule).value();  // Encoders read the segments alone.
  std::vector<at::Tensor> inputs, labels;
  std::int64_t begin = 0;
  for (const auto& item : items) {
    if (item.input_segment > 0) batch.input_segments.push_back(item.input_segment);
    if (item.grid.height > 0) batch.grids.push_back(item.grid);
    inputs.push_back(item.input);
    if (item.labels.defined()) labels.push_back(item.labels);
    if (item.media_rows.defined())
      batch.media.push_back({item.media_positions.add(begin), item.media_rows.to(dtype)});
    begin += item.segment;
  }
  batch.input = at::cat(inputs);
  if (!labels.empty()) batch.labels = at::cat(labels);
  return batch;
}

at::Tensor loss_of(const at::Tensor& output) { return output.mul(output.detach().cos()).sum(); }

std::map<std::string, at::Tensor> gradients(const Chain& chain) {
  std::map<std::string, at::Tensor> result;
  for (const auto& parameter : chain.parameters())
    if (parameter.value.requires_grad())
      result[parameter.name + (parameter.tied_use ? " (tied)" : "")] = parameter.value.grad();
  return result;
}

const ModuleConfig& named(const std::vector<ModuleConfig>& all, const std::string& name) {
  for (const auto& module : all)
    if (module.name == name) return module;
  throw std::logic_error("no such module");
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return a.detach().sub(b.detach()).abs().max().item<double>();
}

const std::vector<std::string> kModules{"vision", "audio", "llm"};

}  // namespace

TEST_CASE("packed samples give what each gives alone", "[models][property]") {
  const auto all = small_model();
  for (const auto& name : kModules) {
    INFO(name);
    const auto chain =
        make_chain(named(all, name), all, {.dtype = at::kDouble, .device = at::kCPU});
    const auto items = items_of(name);
    const auto together = chain.forward(pack(items, at::kDouble));
    loss_of(together).backward();
    const auto packed_gradients = gradients(chain);
    chain.clear_gradients();
    std::vector<at::Tensor> outputs;
    for (const auto& item : items) {
      outputs.push_back(chain.forward(pack({item}, at::kDouble)));
      loss_of(outputs.back()).backward();
    }
    CHECK(difference(together, at::cat(outputs)) < 1e-12);
    for (const auto& [parameter, gradient] : gradients(chain)) {
      INFO(parameter);
      CHECK(difference(gradient, packed_gradients.at(parameter)) < 1e-11);
    }
  }
}

TEST_CASE("the same packed batch gives the same bits again", "[models]") {
  const auto all = small_model();
  for (const auto& name : kModules)
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
      const auto chain = make_chain(named(all, name), all, {.dtype = dtype, .device = at::kCPU});
      const auto batch = pack(items_of(name), dtype);
      const auto first = chain.forward(batch);
      loss_of(first).backward();
      const auto first_gradients = gradients(chain);
      chain.clear_gradients();
      const auto second = chain.forward(pack(items_of(name), dtype));
      loss_of(second).backward();
      CHECK(second.equal(first));
      CHECK_FALSE(first.isnan().any().item<bool>());
      for (const auto& [parameter, gradient] : gradients(chain))
        CHECK(gradient.equal(first_gradients.at(parameter)));
    }
}

TEST_CASE("cutting the graph between layers changes no bit", "[models]") {
  const auto all = small_model();
  for (const auto& name : kModules)
    for (const bool defer : {false, true}) {
      INFO(name << (defer ? " with deferred weight gradients" : ""));
      const LayerOptions options{.dtype = at::kFloat, .device = at::kCPU};
      const auto whole = make_chain(named(all, name), all, options);
      const auto cut = make_chain(named(all, name), all, options);
      const auto batch = pack(items_of(name), at::kFloat);
      const auto expected = whole.forward(batch);
      loss_of(expected).backward();

      std::vector<at::Tensor> inputs, outputs;
      at::Tensor rows;
      for (const auto& layer : cut.layers) {
        rows = rows.defined() ? rows.detach().set_requires_grad(true) : rows;
        inputs.push_back(rows);
        rows = layer->forward(rows, batch);
        outputs.push_back(rows);
      }
      CHECK(rows.equal(expected));
      const auto queue = std::make_shared<kernels::DeferredGradients>();
      auto gradient = rows.detach().cos();
      for (std::size_t i = outputs.size(); i-- > 0;) {
        std::optional<kernels::DeferWeightGradients> guard;
        if (defer) guard.emplace(queue);
        outputs[i].backward(gradient);
        if (i > 0) gradient = inputs[i].grad();
      }
      CHECK(queue->empty() == !defer);
      queue->run();
      const auto whole_gradients = gradients(whole);
      for (const auto& [parameter, value] : gradients(cut)) {
        INFO(parameter);
        CHECK(value.equal(whole_gradients.at(parameter)));
      }
    }
}

TEST_CASE("a frozen module records and leaves nothing", "[models]") {
  const auto all = small_model();
  for (const auto& name : kModules) {
    auto items = items_of(name);
    const auto frozen = make_chain(named(all, name), all,
                                   {.dtype = at::kFloat, .device = at::kCPU, .trainable = false});
    CHECK_FALSE(frozen.forward(pack(items, at::kFloat)).requires_grad());
    for (const auto& parameter : frozen.parameters()) CHECK_FALSE(parameter.value.requires_grad());
  }
}

TEST_CASE("a frozen llm passes gradients to the rows of a trainable encoder", "[models]") {
  const auto all = small_model();
  const auto frozen = make_chain(named(all, "llm"), all,
                                 {.dtype = at::kDouble, .device = at::kCPU, .trainable = false});
  auto batch = pack(items_of("llm"), at::kDouble);
  const auto trained =
      make_chain(named(all, "llm"), all, {.dtype = at::kDouble, .device = at::kCPU});
  std::vector<at::Tensor> expected;
  for (const auto* chain : {&trained, &frozen}) {
    for (auto& media : batch.media) media.rows = media.rows.detach().set_requires_grad(true);
    chain->forward(batch).sum().backward();
    for (std::size_t i = 0; i < batch.media.size(); ++i) {
      REQUIRE(batch.media[i].rows.grad().defined());
      if (chain == &trained)
        expected.push_back(batch.media[i].rows.grad());
      else
        CHECK(batch.media[i].rows.grad().equal(expected[i]));
    }
  }
  for (const auto& parameter : frozen.parameters()) CHECK_FALSE(parameter.value.grad().defined());
}

TEST_CASE("positions of the audio encoder are stored but never trained", "[models]") {
  const auto all = small_model();
  const auto chain = make_chain(named(all, "audio"), all);
  int stored = 0;
  for (const auto& parameter : chain.parameters())
    if (!parameter.value.requires_grad()) {
      ++stored;
      CHECK(parameter.name == "audio.embed_positions.weight");
    }
  CHECK(stored == 1);
}

TEST_CASE("losses are per sample, undivided, and zero without trained tokens", "[models]") {
  const auto all = small_model();
  const auto chain = make_chain(named(all, "llm"), all, {.dtype = at::kDouble, .device = at::kCPU});
  const auto batch = pack(items_of("llm"), at::kDouble);
  const auto losses = chain.forward(batch);
  REQUIRE(losses.dim() == 1);
  CHECK(losses.size(0) == 4);
  CHECK(losses[1].item<double>() == 0);  // A sample of one token predicts nothing.
  // The same from all logits: -log softmax at each row whose next label counts.
  at::Tensor rows;
  for (std::size_t i = 0; i + 1 < chain.layers.size(); ++i)
    rows = chain.layers[i]->forward(rows, batch);
  const auto log_probabilities = head_logits(*chain.layers.back(), rows).log_softmax(-1);
  double first = 0;
  for (int t = 0; t + 1 < 9; ++t) {
    const auto label = batch.labels[t + 1].item<std::int64_t>();
    if (label != -100) first -= log_probabilities[t][label].item<double>();
  }
  CHECK(first > 0);
  CHECK(std::abs(losses[0].item<double>() - first) < 1e-12);
}

TEST_CASE("bf16 follows fp64 within its precision, with a wide loss", "[models]") {
  auto all = small_model();
  for (auto& module : all) module.initializer_range = 0.1;
  for (const auto& name : kModules) {
    INFO(name);
    const auto run = [&](at::ScalarType dtype) {
      const auto chain = make_chain(named(all, name), all, {.dtype = dtype, .device = at::kCPU});
      return chain.forward(pack(items_of(name), dtype));
    };
    const auto narrow = run(at::kBFloat16), exact = run(at::kDouble);
    CHECK(narrow.scalar_type() == (name == "llm" ? at::kFloat : at::kBFloat16));
    const auto scale = exact.abs().max().item<double>();
    CHECK(difference(narrow.to(at::kDouble), exact) < 0.05 * scale);
    CHECK(difference(run(at::kFloat).to(at::kDouble), exact) < 1e-5 * scale);
  }
}

TEST_CASE("a batch without rows gives no rows, forward and backward", "[models]") {
  const auto all = small_model();
  for (const auto& name : kModules) {
    INFO(name);
    const auto chain = make_chain(named(all, name), all);
    PackedBatch nothing;
    nothing.input =
        name == "llm" ? at::zeros({0}, at::kLong) : at::zeros({0, name == "vision" ? 96 : 8});
    nothing.labels = at::zeros({0}, at::kLong);
    const auto output = chain.forward(nothing);
    CHECK(output.size(0) == 0);
    output.sum().backward();
    for (const auto& [parameter, gradient] : gradients(chain))
      if (gradient.defined()) CHECK(gradient.abs().sum().item<double>() == 0);
  }
}

TEST_CASE("the number of threads changes no bit of our own loops", "[models]") {
  // Wide enough for several threads; LibTorch's own operators are left out.
  const auto rows = wave({600, 128}, 1).to(at::kFloat);
  std::vector<at::Tensor> outputs;
  const int kept = at::get_num_threads();
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    const auto input = rows.detach().set_requires_grad(true);
    const auto weight = wave({128}, 2).to(at::kFloat).set_requires_grad(true);
    std::vector<std::int64_t> positions(600);
    std::iota(positions.begin(), positions.end(), 0);
    const auto table = kernels::text_rotary(positions, 32, 10000, at::kFloat, at::kCPU);
    const auto normed = kernels::rms_norm(input, weight, 1e-5);
    kernels::rotate(normed.view({600, 4, 32}), table).mul(rows.view({600, 4, 32})).sum().backward();
    outputs.push_back(at::cat({normed.detach(), input.grad(), weight.grad().unsqueeze(0)}));
    outputs.push_back(initial_value(1, "x", {50001}, Initial::normal, 1));
  }
  at::set_num_threads(kept);
  CHECK(outputs[0].equal(outputs[2]));
  CHECK(outputs[1].equal(outputs[3]));
}

TEST_CASE("a batch whose lengths contradict each other is refused", "[models][errors]") {
  const auto all = small_model();
  const auto vision = make_chain(named(all, "vision"), all);
  auto images = pack(items_of("vision"), at::kFloat);
  images.grids[0] = {4, 4};
  CHECK_THROWS_AS(vision.forward(images), c10::Error);
  const auto audio = make_chain(named(all, "audio"), all);
  auto windows = pack(items_of("audio"), at::kFloat);
  windows.segments[0] = 8;
  CHECK_THROWS_AS(audio.forward(windows), c10::Error);
  PackedBatch long_window;  // 102 frames give 51 rows; the encoder has positions for 50.
  long_window.input = at::zeros({102, 8});
  long_window.input_segments = {102};
  long_window.segments = {51};
  CHECK_THROWS_AS(audio.forward(long_window), c10::Error);
}

TEST_CASE("a changed batch does not meet old positions", "[models]") {
  // Copies share the cache of rotary tables, so it has to notice new lengths.
  const auto all = small_model();
  const auto chain = make_chain(named(all, "llm"), all, {.dtype = at::kDouble, .device = at::kCPU});
  auto items = items_of("llm");
  auto batch = pack(items, at::kDouble);
  (void)chain.forward(batch);
  std::swap(items[0], items[2]);
  auto fresh = pack(items, at::kDouble);
  const auto expected = chain.forward(fresh);
  auto stale = fresh;
  stale.cache = batch.cache;
  CHECK(chain.forward(stale).equal(expected));
}
