#include "scheduler/iteration/iteration_graph.hpp"

#include <algorithm>
#include <cstddef>

#include "scheduler/iteration/deal_microbatches.hpp"
#include "scheduler/iteration/stage_graph.hpp"

namespace troupe::scheduler {

namespace {

/// Dense numbers for the parts of all stages.
class PartNumbers {
 public:
  PartNumbers(const ParallelPlan& plan, const std::vector<MicrobatchList>& microbatches) {
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      const MicrobatchList& list = microbatches[plan.stages[s].replica.index()];
      first_of_stage_.push_back(first_of_microbatch_.size());
      for (const auto& microbatch : list) {
        first_of_microbatch_.push_back(count_);
        count_ += microbatch.parts.size();
      }
    }
  }
  std::size_t of(const MessageEnd& end) const {
    return first_of_microbatch_[first_of_stage_[end.stage.index()] + end.microbatch.index()] +
           end.part.index();
  }
  std::size_t count() const { return count_; }

 private:
  std::vector<std::size_t> first_of_stage_;
  std::vector<std::size_t> first_of_microbatch_;
  std::size_t count_ = 0;
};

/// Builds an `IterationGraph`, stage by stage, then its dependencies.
class GraphBuilder {
 public:
  GraphBuilder(const ParallelPlan& plan, const RowFlow& flow,
               const std::vector<MicrobatchList>& microbatches,
               const std::vector<Message>& messages, bool split_weight, const TaskCost& task_cost)
      : plan_(plan),
        flow_(flow),
        messages_(messages),
        split_weight_(split_weight),
        task_cost_(task_cost),
        numbers_(plan, microbatches),
        gradient_in_(numbers_.count()),
        tasks_(numbers_.count()) {
    for (const auto& message : messages)
      if (message.has_backward) gradient_in_[numbers_.of(message.destination)] = true;
  }

  IterationGraph build(const std::vector<MicrobatchList>& microbatches,
                       const MessageCost& message_cost) {
    const auto depths = stage_depths(plan_);
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      const StageId stage{s};
      const auto leads = plan_.leads_of(stage);
      StageSpec& spec = graph_.tasks.stages.emplace_back();
      spec = {leads.front().value, depths[s], !plan_.is_llm(stage)};
      for (std::size_t i = 1; i < leads.size(); ++i) spec.others.push_back(leads[i].value);
      const MicrobatchList& list = microbatches[plan_.at(stage).replica.index()];
      for (std::size_t m = 0; m < list.size(); ++m)
        for (std::size_t q = 0; q < list[m].parts.size(); ++q)
          add_part({stage, MicrobatchId{m}, PartId{q}}, list[m].parts[q].samples);
    }
    graph_.receives.resize(graph_.tasks.tasks.size());
    graph_.sends.resize(graph_.tasks.tasks.size());
    for (std::size_t m = 0; m < messages_.size(); ++m)
      connect(MessageId{m}, message_cost(messages_[m]));
    graph_.tasks.finish();
    return std::move(graph_);
  }

 private:
  struct PartTasks {
    std::int32_t forward = -1;
    std::int32_t backward = -1;  ///< The one that takes and makes gradients.
  };

  void add_part(MessageEnd end, const std::vector<std::int32_t>& samples) {
    bool works = false;
    bool trains = false;
    for (const auto& run : plan_.at(end.stage).runs) {
      const bool has_rows = std::any_of(samples.begin(), samples.end(), [&](std::int32_t sample) {
        return flow_.output(run.module, sample) > 0;
      });
      works |= has_rows;
      trains |= has_rows && flow_.trains(run);
    }
    if (!works) return;
    auto& tasks = tasks_[numbers_.of(end)];
    tasks.forward = add_task(TaskKind::forward, end, samples);
    const bool passes = gradient_in_[numbers_.of(end)];
    if (!trains && !passes) return;
    const bool split = split_weight_ && trains;
    const bool input_only = split_weight_ && !trains;
    tasks.backward =
        add_task(split || input_only ? TaskKind::backward_input : TaskKind::backward, end, samples);
    graph_.tasks.depend(tasks.backward, tasks.forward);
    if (!split) return;
    const auto weight = add_task(TaskKind::backward_weight, end, samples);
    graph_.tasks.depend(weight, tasks.backward);
  }

  std::int32_t add_task(TaskKind kind, MessageEnd end, const std::vector<std::int32_t>& samples) {
    return graph_.tasks.add({kind, end.stage.value, end.microbatch.value, end.part.value,
                             task_cost_(end.stage, samples, kind)});
  }

  void connect(MessageId id, double delay_ms) {
    const Message& message = messages_[id.index()];
    const PartTasks& source = tasks_[numbers_.of(message.source)];
    const PartTasks& destination = tasks_[numbers_.of(message.destination)];
    graph_.tasks.depend(destination.forward, source.forward, delay_ms);
    graph_.sends[static_cast<std::size_t>(source.forward)].push_back(id);
    graph_.receives[static_cast<std::size_t>(destination.forward)].push_back(id);
    if (!message.has_backward) return;
    graph_.tasks.depend(source.backward, destination.backward, delay_ms);
    graph_.sends[static_cast<std::size_t>(destination.backward)].push_back(id);
    graph_.receives[static_cast<std::size_t>(source.backward)].push_back(id);
  }

  const ParallelPlan& plan_;
  const RowFlow& flow_;
  const std::vector<Message>& messages_;
  const bool split_weight_;
  const TaskCost& task_cost_;
  const PartNumbers numbers_;
  std::vector<bool> gradient_in_;  // Per part: rows whose gradient is wanted come in.
  std::vector<PartTasks> tasks_;   // Per part.
  IterationGraph graph_;
};

/// Adds the depths of a pipeline's stages, the last ones first: those of every replica of a group
/// begin with the deepest entry of the groups behind it, so that no pair of replicas is looked at.
class PipelineDepths {
 public:
  PipelineDepths(const ParallelPlan& plan, PipelineId pipeline, std::vector<std::int32_t>& depths)
      : plan_(plan), depths_(depths), replicas_(replicas_by_group(plan, pipeline)) {}

  /// REQUIRES: stages stand in topological order, and so do groups.
  void add() {
    for (std::size_t g = replicas_.size(); g-- > 0;) {
      if (replicas_[g].empty()) continue;
      const auto begins = behind_group(ModuleGroupId{g});
      for (const ReplicaId replica : replicas_[g]) add_replica(replica, begins);
    }
  }

 private:
  struct Begin {
    LayerId last;            ///< Whose stage hands rows to another group.
    std::int32_t depth = 0;  ///< That its stage has at least.
  };

  /// Each of `a` replicas runs forward until all of `b` have what they begin with.
  std::vector<Begin> behind_group(ModuleGroupId group) const {
    std::vector<Begin> begins;
    const auto a = std::ssize(replicas_[group.index()]);
    for (const ModuleId module : plan_.module_groups[group.index()].modules)
      for (const ModuleId next : plan_.model.at(module).next) {
        if (plan_.group_of(next) == group) continue;
        const auto& others = replicas_[plan_.group_of(next).index()];
        const LayerId entry{next, entry_layer(plan_.model, module, next)};
        std::int32_t deepest = 0;
        for (const ReplicaId other : others)
          if (const StageId to = stage_with(plan_, other, entry); to.valid())
            deepest = std::max(deepest, depths_[to.index()]);
        if (deepest == 0) continue;
        const auto behind = (deepest * std::ssize(others) + a - 1) / a;
        const auto layers = static_cast<std::int32_t>(plan_.model.at(module).layers.size());
        begins.push_back({{module, layers - 1}, static_cast<std::int32_t>(behind) + 1});
      }
    return begins;
  }

  void add_replica(ReplicaId replica, const std::vector<Begin>& begins) {
    for (const Begin& begin : begins) raise(stage_with(plan_, replica, begin.last), begin.depth);
    const auto& stages = plan_.at(replica).stages;
    const std::size_t first = stages.front().index();
    const auto edges =
        stage_edges(plan_.model, std::span(plan_.stages).subspan(first, stages.size()));
    for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge)
      raise(StageId{first + edge->from}, depths_[first + edge->to] + 1);
  }

  void raise(StageId stage, std::int32_t depth) {
    depths_[stage.index()] = std::max(depths_[stage.index()], depth);
  }

  const ParallelPlan& plan_;
  std::vector<std::int32_t>& depths_;
  const std::vector<std::vector<ReplicaId>> replicas_;  // Per group.
};

}  // namespace

std::vector<std::int32_t> stage_depths(const ParallelPlan& plan) {
  std::vector<std::int32_t> depths(plan.stages.size(), 1);
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p)
    PipelineDepths(plan, PipelineId{p}, depths).add();
  return depths;
}

IterationGraph iteration_graph(const ParallelPlan& plan, const RowFlow& flow,
                               const std::vector<MicrobatchList>& microbatches,
                               const std::vector<Message>& messages, bool split_weight,
                               const TaskCost& task_cost, const MessageCost& message_cost) {
  return GraphBuilder(plan, flow, microbatches, messages, split_weight, task_cost)
      .build(microbatches, message_cost);
}

}  // namespace troupe::scheduler
