#include "tests/bench/batch_on_layouts.hpp"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/iteration/batch_work.hpp"
#include "engine/layout/batch_memory.hpp"
#include "engine/setup/job_setup.hpp"
#include "runtime/vocabulary/hand_layout.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/cost/cost_model.hpp"
#include "scheduler/cost/profile.hpp"
#include "scheduler/layout/place_by_hand.hpp"

namespace troupe::bench {

namespace {

constexpr std::int32_t kNodesOfPipeline = 10, kEncoderLayers = 32;
constexpr std::int64_t kEncoderElements = 20'000'000, kProjectorElements = 40'000'000;
constexpr std::int64_t kWidth = 64, kMicrobatches = 64;
constexpr Bytes kDeviceMemory{80'000'000'000};

ModuleSpec module_of(const std::string& name, ModuleKind kind, std::vector<ModuleId> next,
                     std::int32_t layers, std::int64_t elements) {
  ModuleSpec module{name, kind, false, std::move(next), {}, kWidth, kWidth};
  for (std::int32_t l = 0; l < layers; ++l)
    module.layers.push_back({name + ".layers." + std::to_string(l), elements});
  return module;
}

/// A kind of layer for each module: its cost grows with its tokens, and a little with their square.
scheduler::Profile profile_of(const ModelGraph& model) {
  scheduler::Profile profile;
  for (const ModuleSpec& module : model.modules) {
    for (const LayerSpec& layer : module.layers)
      profile.layers.push_back({layer.name, module.name});
    scheduler::LayerProfile kind{
        module.name, {}, scheduler::CostOrigin::computed, Bytes{100'000'000}, {}};
    for (const TokenCount tokens : {64, 512, 4096, 32768}) {
      const double k = static_cast<double>(tokens) / 1024, square = 0.02 * k * k;
      kind.points.push_back({tokens, {k, k, k, 5e7 * k}, {square, 2 * square, 0, 1e6 * k}});
    }
    profile.profiles.push_back(std::move(kind));
  }
  return profile;
}

std::vector<SampleShape> samples_of(std::int32_t count, bool has_encoder) {
  std::mt19937 random(17);
  std::vector<SampleShape> samples;
  for (std::int32_t s = 0; s < count; ++s) {
    SampleShape shape;
    shape.position = s;
    shape.id = "samples/" + std::to_string(s) + ".json";
    const auto rows = static_cast<std::int32_t>(64 + random() % 512);
    if (has_encoder)
      shape.media.push_back({ModuleId{0}, {{4 * rows, 4 * rows, rows, 2, 2 * rows}}});
    shape.llm_tokens = rows + 128 + static_cast<std::int64_t>(random() % 512);
    shape.trained_tokens = 128;
    samples.push_back(std::move(shape));
  }
  return samples;
}

}  // namespace

ModelGraph model_of(std::int32_t layers, bool has_encoder) {
  ModelGraph model;
  if (has_encoder)
    model.modules = {
        module_of("vision", ModuleKind::encoder, {ModuleId{1}}, kEncoderLayers, kEncoderElements),
        module_of("projector", ModuleKind::projector, {ModuleId{2}}, 1, kProjectorElements)};
  model.modules.push_back(
      module_of("llm", ModuleKind::llm, {}, layers, kParametersOfLayer * kElementsOfParameter));
  return model;
}

ParallelPlan plan_of(const ModelGraph& model, std::int32_t nodes) {
  const auto layers = static_cast<std::int32_t>(model.modules.back().layers.size());
  HandLayout layout;
  for (std::int32_t node = 0; node < nodes; ++node) {
    const std::int32_t s = node % kNodesOfPipeline;
    if (s == 0) layout.pipelines.emplace_back();
    HandStage stage{node, 0, {}};
    if (s == 0 && model.modules.size() > 1) stage.runs.push_back({"vision", {}});
    stage.runs.push_back(
        {"llm", LayerRange{layers * s / kNodesOfPipeline, layers * (s + 1) / kNodesOfPipeline}});
    layout.pipelines.back().push_back(std::move(stage));
  }
  return scheduler::place_by_hand(model, layout, {nodes, 1}).value();
}

struct BatchOnLayouts::Batch {
  engine::JobSetup setup;
  std::vector<SampleShape> samples;
};

BatchOnLayouts::BatchOnLayouts(const ModelGraph& model, std::int32_t samples) {
  auto batch = std::make_unique<Batch>();
  // A look asks for what the job says about cutting and for costs: there is no model to prepare.
  batch->setup.job.train.microbatches = kMicrobatches;
  batch->setup.costs = std::make_shared<const engine::PlanningCosts>(engine::PlanningCosts{
      scheduler::CostModel::create(model, profile_of(model)).value(), {}, kDeviceMemory});
  batch->samples = samples_of(samples, model.modules.size() > 1);
  batch_ = std::move(batch);
}

BatchOnLayouts::~BatchOnLayouts() = default;

Status BatchOnLayouts::check(const ParallelPlan& plan) const {
  return engine::check_batch_memory(batch_->setup, plan, batch_->samples);
}

}  // namespace troupe::bench
