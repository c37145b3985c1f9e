#include "scheduler/iteration/redistribution.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <tuple>

#include "runtime/vocabulary/index.hpp"
#include "runtime/vocabulary/module_rows.hpp"
#include "scheduler/iteration/stage_graph.hpp"

namespace troupe::scheduler {

namespace {

/// Builds the messages of all replicas.
class MessageBuilder {
 public:
  MessageBuilder(const ParallelPlan& plan, const RowFlow& flow,
                 const std::vector<MicrobatchList>& microbatches, const SampleUnits& units)
      : plan_(plan),
        flow_(flow),
        microbatches_(microbatches),
        units_(units),
        places_(sample_places(plan, microbatches, units.size())) {}

  std::vector<Message> build() {
    for (std::size_t r = 0; r < plan_.replicas.size(); ++r) {
      add_inner(ReplicaId{r});
      for (const ModuleId module : modules_of(ReplicaId{r}))
        for (const ModuleId next : plan_.model.at(module).next)
          if (plan_.group_of(next) != plan_.at(ReplicaId{r}).group)
            add_crossing(ReplicaId{r}, module, next);
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
  /// Where a sample's rows go.
  struct EndOfSample {
    MessageEnd end;
    std::int32_t sample = -1;
  };

  const std::vector<ModuleId>& modules_of(ReplicaId replica) const {
    return plan_.module_groups[plan_.at(replica).group.index()].modules;
  }

  /// Calls `take` with the end of every part of a replica at this stage and its samples that have
  /// output rows of the module.
  template <class Take>
  void for_each_part(StageId stage, ModuleId module, Take take) const {
    const MicrobatchList& list = microbatches_[plan_.at(stage).replica.index()];
    for (std::size_t m = 0; m < list.size(); ++m)
      for (std::size_t q = 0; q < list[m].parts.size(); ++q) {
        std::vector<std::int32_t> moved;
        for (const auto sample : list[m].parts[q].samples)
          if (flow_.output(module, sample) > 0) moved.push_back(sample);
        if (!moved.empty()) take(MessageEnd{stage, MicrobatchId{m}, PartId{q}}, std::move(moved));
      }
  }

  /// Rows between stages of one replica: part for part.
  void add_inner(ReplicaId replica) {
    const auto& stages = plan_.at(replica).stages;
    const std::size_t first = stages.front().index();
    const auto own = std::span(plan_.stages).subspan(first, stages.size());
    for (const StageEdge& edge : stage_edges(plan_.model, own))
      for_each_part(StageId{first + edge.from}, edge.module,
                    [&](MessageEnd source, std::vector<std::int32_t> samples) {
                      const MessageEnd to{StageId{first + edge.to}, source.microbatch, source.part};
                      add(edge, source, to, std::move(samples));
                    });
  }

  /// Per replica: where rows of `module` enter `next`; invalid in other groups.
  const std::vector<StageId>& entries_of(ModuleId module, ModuleId next) {
    auto& entries = entries_[{module, next}];
    if (!entries.empty()) return entries;
    const LayerId entry{next, entry_layer(plan_.model, module, next)};
    for (std::size_t r = 0; r < plan_.replicas.size(); ++r)
      entries.push_back(stage_with(plan_, ReplicaId{r}, entry));
    return entries;
  }

  /// Rows into another group: a sample goes where its part is there, in whatever replica, and a
  /// piece where its sample is.
  void add_crossing(ReplicaId replica, ModuleId module, ModuleId next) {
    const auto layers = static_cast<std::int32_t>(plan_.model.at(module).layers.size());
    const StageEdge edge{0, 0, module, true, layers};
    const std::vector<StageId>& entries = entries_of(module, next);
    const auto& places = places_[plan_.group_of(next).index()];
    for_each_part(stage_with(plan_, replica, {module, layers - 1}), module,
                  [&](MessageEnd source, const std::vector<std::int32_t>& moved) {
                    ends_.clear();
                    for (const auto sample : moved) {
                      const bool is_there = places[at(sample)].replica.valid();
                      const SamplePlace& place =
                          places[at(is_there ? sample : units_.sample_of(sample))];
                      ends_.push_back(
                          {{entries[place.replica.index()], place.microbatch, place.part}, sample});
                    }
                    add_by_end(edge, source);
                  });
  }

  /// Of one part: a message to each end, with its samples in their order.
  void add_by_end(const StageEdge& edge, MessageEnd source) {
    std::ranges::stable_sort(ends_, {}, &EndOfSample::end);
    for (auto next = ends_.begin(); next != ends_.end();) {
      const MessageEnd end = next->end;
      std::vector<std::int32_t> samples;
      for (; next != ends_.end() && next->end == end; ++next) samples.push_back(next->sample);
      add(edge, source, end, std::move(samples));
    }
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
  const std::vector<MicrobatchList>& microbatches_;
  const SampleUnits& units_;
  const std::vector<std::vector<SamplePlace>> places_;
  std::map<std::pair<ModuleId, ModuleId>, std::vector<StageId>> entries_;  // As `entries_of`.
  std::vector<EndOfSample> ends_;  // Of the part that is looked at.
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
    const ModuleKind kind = model.modules[m].kind;
    for (std::size_t s = 0; s < samples.size(); ++s) {
      // Modules stand in topological order, so that what feeds a projector is known here.
      TokenCount rows = 0;
      if (kind == ModuleKind::projector)
        for (const ModuleId other : before) rows += modules_[other.index()].output[s];
      else
        rows = output_rows(model, module, samples[s]);
      facts.output.push_back(rows);
      facts.hidden.push_back(
          rows > 0 && kind == ModuleKind::encoder ? samples[s].hidden_rows(module) : rows);
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

std::vector<std::vector<SamplePlace>> sample_places(const ParallelPlan& plan,
                                                    const std::vector<MicrobatchList>& microbatches,
                                                    std::size_t unit_count) {
  std::vector<std::vector<SamplePlace>> places(plan.module_groups.size(),
                                               std::vector<SamplePlace>(unit_count));
  for (std::size_t r = 0; r < microbatches.size(); ++r) {
    auto& own = places[plan.replicas[r].group.index()];
    const MicrobatchList& list = microbatches[r];
    for (std::size_t m = 0; m < list.size(); ++m)
      for (std::size_t q = 0; q < list[m].parts.size(); ++q)
        for (const auto sample : list[m].parts[q].samples)
          own[at(sample)] = {ReplicaId{r}, MicrobatchId{m}, PartId{q}};
  }
  return places;
}

std::vector<Message> plan_messages(const ParallelPlan& plan, const RowFlow& flow,
                                   const std::vector<MicrobatchList>& microbatches,
                                   const SampleUnits& units) {
  return MessageBuilder(plan, flow, microbatches, units).build();
}

}  // namespace troupe::scheduler
