#include "scheduler/redistribution.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <tuple>

#include "runtime/vocabulary/module_rows.hpp"
#include "scheduler/stage_graph.hpp"

namespace troupe::scheduler {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

/// Where a sample is on the llm side.
struct Place {
  std::int32_t pipeline = -1;
  MicrobatchId microbatch;
  PartId part;
};

std::vector<Place> llm_places(const std::vector<PipelineMicrobatches>& microbatches,
                              std::size_t sample_count) {
  std::vector<Place> places(sample_count);
  for (std::size_t p = 0; p < microbatches.size(); ++p)
    for (std::size_t m = 0; m < microbatches[p].llm.size(); ++m)
      for (std::size_t q = 0; q < microbatches[p].llm[m].parts.size(); ++q)
        for (const auto sample : microbatches[p].llm[m].parts[q].samples)
          places[at(sample)] = {static_cast<std::int32_t>(p), MicrobatchId{m}, PartId{q}};
  return places;
}

std::span<const Stage> stages_of(const ParallelPlan& plan, std::size_t pipeline) {
  const auto& stages = plan.pipelines[pipeline].stages;
  return std::span(plan.stages).subspan(stages.front().index(), stages.size());
}

/// The stage of a pipeline that holds the llm's first layer.
StageId llm_entry(const ParallelPlan& plan, std::size_t pipeline) {
  for (const StageId stage : plan.pipelines[pipeline].stages)
    for (const auto& run : plan.at(stage).runs)
      if (run.module == plan.model.llm() && run.layers.begin == 0) return stage;
  return StageId{};
}

/// Builds the messages of one pipeline's edges.
class MessageBuilder {
 public:
  MessageBuilder(const ParallelPlan& plan, const RowFlow& flow,
                 const std::vector<PipelineMicrobatches>& microbatches, std::size_t sample_count)
      : plan_(plan),
        flow_(flow),
        microbatches_(microbatches),
        llm_places_(llm_places(microbatches, sample_count)) {
    for (std::size_t p = 0; p < plan.pipelines.size(); ++p)
      llm_entries_.push_back(llm_entry(plan, p));
  }

  std::vector<Message> build() {
    for (std::size_t p = 0; p < plan_.pipelines.size(); ++p) {
      const std::size_t first = plan_.pipelines[p].stages.front().index();
      for (const auto& edge : stage_edges(plan_.model, stages_of(plan_, p)))
        add_edge(p, edge, first);
    }
    const auto before = [](const Message& a, const Message& b) {
      return std::tie(a.source, a.destination, a.module) <
             std::tie(b.source, b.destination, b.module);
    };
    // A stage with one stage after it has its messages in order already.
    if (!std::is_sorted(messages_.begin(), messages_.end(), before))
      std::sort(messages_.begin(), messages_.end(), before);
    return std::move(messages_);
  }

 private:
  void add_edge(std::size_t pipeline, const StageEdge& edge, std::size_t first_stage) {
    const StageId from{first_stage + edge.from};
    const StageId to{first_stage + edge.to};
    const bool crosses = side_of(plan_, from) != side_of(plan_, to);
    const auto& list = microbatches_[pipeline].of(side_of(plan_, from));
    for (std::size_t m = 0; m < list.size(); ++m) {
      for (std::size_t q = 0; q < list[m].parts.size(); ++q) {
        const MessageEnd source{from, MicrobatchId{m}, PartId{q}};
        std::vector<std::int32_t> moved;
        for (const auto sample : list[m].parts[q].samples)
          if (flow_.output(edge.module, sample) > 0) moved.push_back(sample);
        if (crosses)
          add_crossing(edge, source, moved);
        else if (!moved.empty())
          add(edge, source, {to, MicrobatchId{m}, PartId{q}}, std::move(moved));
      }
    }
  }

  /// Across the boundary a sample goes where its llm part is, maybe in another pipeline.
  void add_crossing(const StageEdge& edge, MessageEnd source,
                    const std::vector<std::int32_t>& moved) {
    std::map<MessageEnd, std::vector<std::int32_t>> samples_to;
    for (const auto sample : moved) {
      const Place& place = llm_places_[at(sample)];
      samples_to[{llm_entries_[at(place.pipeline)], place.microbatch, place.part}].push_back(
          sample);
    }
    for (auto& [end, samples] : samples_to) add(edge, source, end, std::move(samples));
  }

  void add(const StageEdge& edge, MessageEnd source, MessageEnd destination,
           std::vector<std::int32_t> samples) {
    const auto& module = plan_.model.at(edge.module);
    Message message{edge.module,
                    edge.boundary,
                    source,
                    destination,
                    std::move(samples),
                    0,
                    edge.boundary ? module.output_width : module.hidden_width,
                    false};
    for (const auto sample : message.samples) {
      message.rows +=
          edge.boundary ? flow_.output(edge.module, sample) : flow_.hidden(edge.module, sample);
      message.has_backward |= flow_.wants_gradient(edge.module, edge.layers, sample);
    }
    messages_.push_back(std::move(message));
  }

  const ParallelPlan& plan_;
  const RowFlow& flow_;
  const std::vector<PipelineMicrobatches>& microbatches_;
  std::vector<Place> llm_places_;
  std::vector<StageId> llm_entries_;  // Per pipeline.
  std::vector<Message> messages_;
};

}  // namespace

RowFlow::RowFlow(const ModelGraph& model, std::span<const SampleShape> samples)
    : modules_(model.modules.size()) {
  for (std::size_t m = 0; m < modules_.size(); ++m) {
    const ModuleId module{m};
    auto& facts = modules_[m];
    facts.trainable_before.push_back(0);
    for (std::size_t l = 0; l < model.modules[m].layers.size(); ++l) {
      const bool trains = troupe::trains(model, {module, static_cast<std::int32_t>(l)});
      facts.trainable_before.push_back(facts.trainable_before.back() + (trains ? 1 : 0));
    }
    const auto before = predecessors(model, module);
    for (std::size_t s = 0; s < samples.size(); ++s) {
      facts.hidden.push_back(hidden_rows(model, module, samples[s]));
      facts.output.push_back(output_rows(model, module, samples[s]));
      facts.gradient_in.push_back(std::any_of(before.begin(), before.end(), [&](ModuleId other) {
        const auto& its = modules_[other.index()];
        return its.output[s] > 0 && (its.trainable_before.back() > 0 || its.gradient_in[s]);
      }));
    }
  }
}

TokenCount RowFlow::hidden(ModuleId module, std::int32_t sample) const {
  return modules_[module.index()].hidden[at(sample)];
}

TokenCount RowFlow::output(ModuleId module, std::int32_t sample) const {
  return modules_[module.index()].output[at(sample)];
}

bool RowFlow::wants_gradient(ModuleId module, std::int32_t layers, std::int32_t sample) const {
  const auto& facts = modules_[module.index()];
  if (facts.output[at(sample)] == 0) return false;
  return facts.trainable_before[at(layers)] > 0 || facts.gradient_in[at(sample)];
}

bool RowFlow::trains(const LayerRun& run) const {
  const auto& before = modules_[run.module.index()].trainable_before;
  return before[at(run.layers.end)] > before[at(run.layers.begin)];
}

std::vector<Message> plan_messages(const ParallelPlan& plan, const RowFlow& flow,
                                   const std::vector<PipelineMicrobatches>& microbatches,
                                   std::size_t sample_count) {
  return MessageBuilder(plan, flow, microbatches, sample_count).build();
}

}  // namespace troupe::scheduler
