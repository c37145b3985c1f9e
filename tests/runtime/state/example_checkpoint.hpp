// A small checkpoint: one matrix in two boxes, one vector that does not train.

#pragma once

#include "runtime/state/checkpoint_manifest.hpp"

namespace troupe::state {

inline CheckpointManifest example_manifest(std::int64_t step = 4, Dtype dtype = Dtype::fp32) {
  CheckpointManifest manifest;
  manifest.job = "demo";
  manifest.build = "0.1.0 (abc)";
  manifest.written_at = "2026-11-23T15:00:00Z";
  manifest.dtype = dtype;
  manifest.progress.step = step;
  manifest.progress.tokens = 1000;
  manifest.progress.generation = 2;
  manifest.progress.data = {60, 0xFFFF'FFFF'FFFF'FFFF, 16, 42, true, {{0, {40, 8}}, {3, {50, 10}}}};
  manifest.progress.skipped = {3, 1, 5};
  manifest.progress.bad = {{"a", 0}, {"b", 3}};
  manifest.progress.deals = {{2, {{1.5, 0.25}, {0.1, 3}}}};
  manifest.progress.learned = {
      "2026-11-23T14:00:00Z",
      {{"vision 0-1 on 0.0", {"vision"}, 1.25}, {"llm 0-2 on 1.0", {"llm"}, 0}},
      7,
      {{0, "vision", 64, 1.0 / 3, 5}, {1, "llm", 128, 2.5, 1}},
      {{1, "", 256, 1.5, 4}},
      false,
      0.125,
      3};
  manifest.parameters = {{"llm.a", {4, 6}, true}, {"vision.b", {3}, false}};
  manifest.files = {{"state-0.0.safetensors", 10, "00"}, {"state-1.0.safetensors", 20, "11"}};
  const auto add = [&](std::int32_t parameter, StateKind kind, Box box, std::int32_t file) {
    manifest.shards.push_back({{ParameterId{parameter}, kind, std::move(box)}, file});
  };
  add(0, StateKind::value, {{0, 4}, {0, 2}}, 0);
  add(0, StateKind::value, {{0, 4}, {2, 6}}, 1);
  if (dtype == Dtype::bf16) add(0, StateKind::master, {{0, 4}, {0, 6}}, 0);
  add(0, StateKind::moments, {{0, 4}, {0, 6}}, 1);
  add(1, StateKind::value, {{0, 3}}, 0);
  return manifest;
}

}  // namespace troupe::state
