// A small plan for the tests of this folder: two pipelines of vision -> projector -> llm on three
// nodes, cut differently, with a tied head.
//
//   pipeline 0: stage 0 vision + projector on device 0 (node 0);
//               stages 1, 2 llm [0, 2), [2, 4) on devices 1 (node 1), 2 (node 1, second)
//   pipeline 1: stage 3 vision + projector, stage 4 llm [0, 4), both on device 3 (node 2)

#pragma once

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::testing {

inline ParallelPlan example_plan() {
  const ModuleId vision{0}, projector{1}, llm{2};
  ParallelPlan plan;
  plan.model.modules = {
      {"vision", ModuleKind::encoder, true, {projector}, {{"vision.0", 10}}, 8, 8},
      {"projector", ModuleKind::projector, false, {llm}, {{"projector.0", 20}}, 8, 16},
      {"llm",
       ModuleKind::llm,
       false,
       {},
       {{"llm.embed", 0}, {"llm.layers.0", 5}, {"llm.layers.1", 5}, {"llm.head", 3}},
       16,
       16}};
  plan.model.tied = {{"llm.embed.weight", {{llm, 0}, {llm, 3}}, 40}};
  plan.devices = {{NodeId{0}, 0}, {NodeId{1}, 0}, {NodeId{1}, 1}, {NodeId{2}, 0}};
  const auto encoders = std::vector<LayerRun>{{vision, {0, 1}}, {projector, {0, 1}}};
  plan.module_groups = {{"vision", {vision, projector}}, {"llm", {llm}}};
  const ModuleGroupId first{0}, second{1};
  plan.replicas = {{first, PipelineId{0}, {StageId{0}}},
                   {second, PipelineId{0}, {StageId{1}, StageId{2}}},
                   {first, PipelineId{1}, {StageId{3}}},
                   {second, PipelineId{1}, {StageId{4}}}};
  plan.stages = {{ReplicaId{0}, encoders, {DeviceId{0}}},
                 {ReplicaId{1}, {{llm, {0, 2}}}, {DeviceId{1}}},
                 {ReplicaId{1}, {{llm, {2, 4}}}, {DeviceId{2}}},
                 {ReplicaId{2}, encoders, {DeviceId{3}}},
                 {ReplicaId{3}, {{llm, {0, 4}}}, {DeviceId{3}}}};
  plan.pipelines = {{{ReplicaId{0}, ReplicaId{1}}}, {{ReplicaId{2}, ReplicaId{3}}}};
  plan.groups = {{"projector.0",
                  false,
                  20,
                  {{StageId{0}, {projector, 0}}, {StageId{3}, {projector, 0}}},
                  {DeviceId{0}, DeviceId{3}}},
                 {"llm.embed.weight",
                  true,
                  40,
                  {{StageId{1}, {llm, 0}},
                   {StageId{2}, {llm, 3}},
                   {StageId{4}, {llm, 0}},
                   {StageId{4}, {llm, 3}}},
                  {DeviceId{1}, DeviceId{2}, DeviceId{3}}}};
  return plan;
}

// One microbatch per pipeline; message 0 brings the rows of sample "s\"1" from stage 0 to stage 1.
inline IterationPlan example_iteration() {
  IterationPlan plan;
  plan.step = 7;
  plan.epoch_number = 2;
  plan.samples.resize(3);
  for (int i = 0; i < 3; ++i)
    plan.samples[static_cast<std::size_t>(i)].id = "s\"" + std::to_string(i);
  const Microbatch both{{Part{{1}}, Part{{0}}}}, one{{Part{{2}}}};
  plan.microbatches = {{both}, {both}, {one}, {one}};
  Message message;
  message.module = ModuleId{1};
  message.boundary = true;
  message.source = {StageId{0}, MicrobatchId{0}, PartId{0}};
  message.destination = {StageId{1}, MicrobatchId{4}, PartId{1}};
  message.samples = {1};
  message.rows = 6;
  message.width = 16;
  message.has_backward = true;
  plan.messages = {message};
  return plan;
}

}  // namespace troupe::testing
