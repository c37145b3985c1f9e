// The compute of an iteration of a `ParallelPlan` as a task graph, with the messages between.
//
// Pure.

#pragma once

#include <functional>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "scheduler/iteration/redistribution.hpp"
#include "scheduler/iteration/task_graph.hpp"

namespace troupe::scheduler {

/// Predicted milliseconds of one task: stage, the samples of its part, what it does.
using TaskCost =
    std::function<double(StageId stage, const std::vector<std::int32_t>& samples, TaskKind kind)>;

/// Predicted milliseconds until a message's rows have arrived.
using MessageCost = std::function<double(const Message& message)>;

/// Tasks and the messages each needs and makes.
struct IterationGraph {
  TaskGraph tasks;
  /// Per task: indices of messages. Of a forward, rows; of a backward, gradients.
  std::vector<std::vector<MessageId>> receives;
  std::vector<std::vector<MessageId>> sends;
};

/// Microbatches that a stage has to run forward before a gradient can come back: stages on the
/// longest path to the llm's last one, both included, where all module groups of the pipeline have
/// equally many replicas. From `a` replicas of a group into `b` of the next, those behind count b/a
/// times, rounded up: a few encoders feed the first microbatches of many llm replicas.
std::vector<std::int32_t> stage_depths(const ParallelPlan& plan);

/// Builds the graph. A stage has a forward for every part with rows for one of its runs; a backward
/// where such a run trains or an incoming message has one. With `split_weight` a backward is two
/// tasks, and only stages that train have the second.
///
/// REQUIRES: sound microbatches, and messages of `plan_messages` for them.
IterationGraph iteration_graph(const ParallelPlan& plan, const RowFlow& flow,
                               const std::vector<MicrobatchList>& microbatches,
                               const std::vector<Message>& messages, bool split_weight,
                               const TaskCost& task_cost, const MessageCost& message_cost);

}  // namespace troupe::scheduler
