// A pipeline of encoder stages and llm stages, from work per sample and microbatches: what
// simulations of balancing policies run.
//
// Pure.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "scheduler/cost/stage_times.hpp"
#include "scheduler/iteration/list_schedule.hpp"

namespace troupe::scheduler {

/// Forward work of one sample in whole modules.
struct ModuleWork {
  double encoder_ms = 0;
  double llm_ms = 0;
};

/// Sample indices per microbatch, in execution order.
using SampleLists = std::vector<std::vector<std::int32_t>>;

/// The stages. A module's work is shared out evenly over its stages.
struct ModulePipeline {
  std::int32_t encoder_stages = 1;  ///< >= 1.
  std::int32_t llm_stages = 1;      ///< >= 1.
  bool freeze_encoder = false;
  bool freeze_llm = false;
  bool colocated = false;  ///< Llm stage i runs on the device of encoder stage i.
};

/// Times of all stages, named `encoder.0`, ..., `llm.0`, ... A backward takes twice the forward:
/// once for inputs, once for weights. A frozen encoder has none of it; a frozen llm has only the
/// input half, and nothing if the encoder is frozen as well.
///
/// The samples of an encoder microbatch that go to one llm microbatch are a part; the part of the
/// llm microbatch with the same number comes first, then by llm microbatch. Samples without encoder
/// work need nothing from the encoder. The side with fewer microbatches gets empty ones.
///
/// REQUIRES: both lists hold each sample once; stage counts >= 1.
PipelineTimes module_pipeline(std::span<const ModuleWork> samples, const SampleLists& encoder,
                              const SampleLists& llm, const ModulePipeline& shape);

/// The same for microbatches of one sample each, without deferral.
PipelineTimes module_pipeline(std::span<const ModuleWork> microbatches,
                              const ModulePipeline& shape);

/// A step time that no order of this pipeline can beat: the largest over devices and stages of the
/// work itself, and of (forward way to the stage of its nearest microbatch + the stage's whole work
/// + backward way from it). The way of a microbatch counts each stage before it once. In a graph
/// with split weight gradients, these do not count between the two ways, as they can run later.
///
/// REQUIRES: tasks stand by stage, stages in topological order, as `task_graph` makes them.
double lower_bound_ms(const TaskGraph& graph);

/// The same for one schedule, larger where its rules forbid more. `gpipe`: the longest forward
/// phase plus the longest backward phase, each the largest over stages of (way of the nearest
/// microbatch to the stage + its work in this direction + the way on to the other end).
///
/// Proof. In GPipe the last stage runs all forwards before any backward, and every backward needs
/// one of the last stage's: no backward begins anywhere before the last forward there has ended.
/// That is not before any stage has had its first rows, done its forwards, and its last ones have
/// come down to the last stage: the forward phase. The same from there back: the backward phase,
/// which begins when the other has ended. Other schedules: `lower_bound_ms`.
///
/// REQUIRES: as `lower_bound_ms`.
double schedule_bound_ms(const TaskGraph& graph, const std::string& schedule);

}  // namespace troupe::scheduler
