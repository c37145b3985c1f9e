// Model graphs and samples that the planner tests share.

#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/layout/place_by_hand.hpp"

namespace troupe::scheduler::testing {

inline std::vector<LayerSpec> layers(const std::string& name, int count) {
  std::vector<LayerSpec> list;
  for (int i = 0; i < count; ++i) list.push_back({name + "." + std::to_string(i), 10 + i});
  return list;
}

/// vision (4) -> vision_projector (1) -> llm (6); audio (3) -> audio_projector (1) -> llm.
/// Modules in this order: 0 vision, 1 vision_projector, 2 audio, 3 audio_projector, 4 llm.
inline ModelGraph vision_audio_llm() {
  ModelGraph graph;
  graph.modules = {
      {"vision", ModuleKind::encoder, false, {ModuleId{1}}, layers("vision.layers", 4), 32, 48},
      {"vision_projector",
       ModuleKind::projector,
       false,
       {ModuleId{4}},
       layers("vision_projector", 1),
       48,
       64},
      {"audio", ModuleKind::encoder, false, {ModuleId{3}}, layers("audio.layers", 3), 16, 16},
      {"audio_projector",
       ModuleKind::projector,
       false,
       {ModuleId{4}},
       layers("audio_projector", 1),
       16,
       64},
      {"llm", ModuleKind::llm, false, {}, layers("llm.layers", 6), 64, 64}};
  return graph;
}

/// A text-only model of `count` layers.
inline ModelGraph text_llm(int count) {
  ModelGraph graph;
  graph.modules = {{"llm", ModuleKind::llm, false, {}, layers("llm.layers", count), 64, 64}};
  return graph;
}

/// The same model, all of whose parameters tensor-parallel ranks share.
inline ModelGraph split_by_ranks(ModelGraph graph) {
  for (auto& module : graph.modules)
    for (auto& layer : module.layers) layer.splits = {{layer.parameter_elements, 0}};
  return graph;
}

/// A sample with this many images (8 patches, 2 rows each) and audio windows (10 frames, 5 hidden
/// rows, 5 output rows), for `vision_audio_llm`.
inline SampleShape sample(int images, int windows, TokenCount text = 7) {
  SampleShape shape;
  static std::int64_t position = 0;
  shape.position = position++;
  shape.id = "s" + std::to_string(shape.position);
  if (images > 0)
    shape.media.push_back(
        {ModuleId{0}, std::vector<MediaShape>(static_cast<std::size_t>(images), {8, 8, 2, 2, 4})});
  if (windows > 0)
    shape.media.push_back({ModuleId{2}, std::vector<MediaShape>(static_cast<std::size_t>(windows),
                                                                {10, 5, 5, 0, 0})});
  shape.llm_tokens = text + 2 * images + 5 * windows;
  shape.trained_tokens = text / 2 + 1;
  return shape;
}

/// A uniformly drawn integer of [low, high]; the same on every platform.
inline int draw(std::mt19937& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

/// Five stages of one layer: two on one device, one on its neighbour, two on the devices of another
/// node, so that rows between them take every class of link.
inline ParallelPlan over_all_links() {
  const HandLayout layout{{{{0, 0, {{"llm", LayerRange{0, 1}}}},
                            {0, 0, {{"llm", LayerRange{1, 2}}}},
                            {0, 1, {{"llm", LayerRange{2, 3}}}},
                            {1, 0, {{"llm", LayerRange{3, 4}}}},
                            {1, 1, {{"llm", LayerRange{4, 5}}}}}}};
  return place_by_hand(text_llm(5), layout, {2, 2}).value();
}

}  // namespace troupe::scheduler::testing
