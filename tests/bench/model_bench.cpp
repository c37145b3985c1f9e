// Forward and backward of the real-mini-sized model in one process: tokens per second, one thread.
//
//   model_bench [SHAPES.json] [REPEATS]
//
// Prints JSON lines {"measure", "value", "unit"}. model_peer.py runs the same shapes.

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sin.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "models/llama/family.hpp"
#include "models/qwen2_vl/family.hpp"
#include "models/text_batch.hpp"
#include "models/whisper/family.hpp"
#include "tests/models/chain.hpp"

using namespace troupe;
using namespace troupe::models;

namespace {

struct Microbatch {
  PackedBatch vision, audio, llm;
  at::Tensor vision_positions, audio_positions;
};

struct Model {
  Chain vision, vision_projector, audio, audio_projector, llm;
};

at::Tensor wave(std::int64_t rows, std::int64_t columns) {
  return at::arange(rows * columns, at::kFloat).mul_(0.7).sin_().view({rows, columns});
}

at::Tensor to_tensor(const std::vector<std::int64_t>& values) {
  auto tensor = at::full({static_cast<std::int64_t>(values.size())}, 0, at::kLong);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<std::int64_t>());
  return tensor;
}

// Media rows stand at the start of each sample, trained tokens at its end.
Microbatch make_microbatch(const nlohmann::json& shapes, std::size_t begin, std::size_t end) {
  Microbatch batch;
  std::vector<std::int64_t> vision_positions, audio_positions, labels;
  std::vector<TokenSample> samples;
  std::int64_t patches = 0, frames = 0, first = 0;
  for (auto i = begin; i < end; ++i) {
    auto position = first;
    for (const auto& grid : shapes[i]["grids"]) {
      const std::int64_t height = grid[0], width = grid[1];
      batch.vision.grids.push_back({height, width});
      batch.vision.segments.push_back(height * width);
      patches += height * width;
      for (int k = 0; k < height * width / 4; ++k) vision_positions.push_back(position++);
    }
    for (const std::int64_t length : shapes[i]["frames"]) {
      batch.audio.input_segments.push_back(length);
      batch.audio.segments.push_back((length + 1) / 2);
      frames += length;
      for (int k = 0; k < (length + 1) / 2; ++k) audio_positions.push_back(position++);
    }
    const std::int64_t tokens = shapes[i]["tokens"], trained = shapes[i]["trained"];
    for (std::int64_t t = 0; t < tokens; ++t)
      labels.push_back(t + trained < tokens ? -100 : (first + t) % 256);
    samples.push_back({tokens, {}});
    first += tokens;
  }
  batch.llm = text_batch(samples, AttentionRule::causal).value();
  batch.vision.input = wave(patches, 1176);
  batch.audio.input = wave(frames, 80);
  batch.llm.labels = to_tensor(labels);
  batch.llm.input = at::arange(first, at::kLong).remainder_(256);
  batch.vision_positions = to_tensor(vision_positions);
  batch.audio_positions = to_tensor(audio_positions);
  return batch;
}

std::vector<ModuleConfig> real_mini() {
  auto model = small_model();
  model[0].config = models::VisionConfig{};
  model[2].config = models::AudioConfig{};
  model[4].config = models::LlmConfig{};
  for (auto& module : model) module.initializer_range = 0.02;
  return model;
}

void step(const Model& model, Microbatch& batch) {
  batch.llm.media.clear();
  if (!batch.vision.segments.empty()) {
    auto rows = model.vision_projector.forward({}, model.vision.forward(batch.vision));
    batch.llm.media.push_back({batch.vision_positions, rows});
  }
  if (!batch.audio.segments.empty()) {
    auto rows = model.audio_projector.forward({}, model.audio.forward(batch.audio));
    batch.llm.media.push_back({batch.audio_positions, rows});
  }
  model.llm.forward(batch.llm).sum().backward();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print(const char* measure, double value, const char* unit) {
  std::cout << nlohmann::json{{"measure", measure}, {"value", value}, {"unit", unit}} << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  std::ifstream file(argc > 1 ? argv[1] : "tests/bench/model_shapes.json");
  if (!file) {
    std::cerr << "model_bench: no shapes file; run it from the repository root\n";
    return 2;
  }
  const auto shapes = nlohmann::json::parse(file);
  const int repeats = argc > 2 ? std::stoi(argv[2]) : 9;
  const auto configs = real_mini();
  Model model{make_chain(configs[0], configs), make_chain(configs[1], configs),
              make_chain(configs[2], configs), make_chain(configs[3], configs),
              make_chain(configs[4], configs)};
  const std::vector<const Chain*> chains{&model.vision, &model.vision_projector, &model.audio,
                                         &model.audio_projector, &model.llm};
  std::vector<Microbatch> batches;
  std::int64_t tokens = 0, parameters = 0;
  for (std::size_t i = 0; i + 4 <= shapes.size(); i += 4)
    batches.push_back(make_microbatch(shapes, i, i + 4));
  for (const auto& batch : batches) tokens += batch.llm.input.size(0);
  for (const auto* chain : chains)
    for (const auto& parameter : chain->parameters()) parameters += parameter.value.numel();

  std::vector<double> seconds, cpu_seconds;
  for (int repeat = 0; repeat < repeats + 2; ++repeat) {
    for (const auto* chain : chains) chain->clear_gradients();
    const auto begin = std::chrono::steady_clock::now();
    const auto cpu_begin = std::clock();
    for (auto& batch : batches) step(model, batch);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    if (repeat < 2) continue;  // Caches and allocators warm up.
    seconds.push_back(time.count());
    cpu_seconds.push_back(static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC);
  }
  print("model.parameters", static_cast<double>(parameters), "");
  print("model.tokens_per_s", static_cast<double>(tokens) / median(seconds), "tokens/s");
  // Does not suffer from other programs on the machine: the figure to compare.
  print("model.tokens_per_cpu_s", static_cast<double>(tokens) / median(cpu_seconds), "tokens/s");
}
