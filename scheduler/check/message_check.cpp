#include "scheduler/check/message_check.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

#include "runtime/vocabulary/index.hpp"
#include "runtime/vocabulary/module_rows.hpp"
#include "scheduler/iteration/redistribution.hpp"

namespace troupe::scheduler {

namespace {

/// One sample's rows on their way.
struct RowMove {
  MessageEnd source;
  MessageEnd destination;
  ModuleId module;
  bool boundary = false;
  std::int32_t sample = 0;
  bool wants_gradient = false;  ///< Not part of the identity.

  auto identity() const { return std::tie(source, destination, module, boundary, sample); }
};

std::string text_of(const RowMove& move) {
  return "sample " + std::to_string(move.sample) + ", module " + std::to_string(move.module.value) +
         ", stage " + std::to_string(move.source.stage.value) + " to " +
         std::to_string(move.destination.stage.value);
}

/// Walks samples through layers and notes where they change stages.
class Walk {
 public:
  Walk(const ParallelPlan& plan, const IterationPlan& iteration, const SampleUnits& units)
      : plan_(plan),
        units_(units),
        places_(sample_places(plan, iteration.microbatches, units_.size())),
        stage_of_(plan.replicas.size()) {
    for (auto& modules : stage_of_)
      for (const auto& module : plan.model.modules) modules.emplace_back(module.layers.size());
    for (std::size_t s = 0; s < plan.stages.size(); ++s)
      for (const auto& run : plan.stages[s].runs)
        for (auto l = run.layers.begin; l < run.layers.end; ++l)
          stage_of_[plan.stages[s].replica.index()][run.module.index()][at(l)] = StageId{s};
  }

  std::vector<RowMove> moves() {
    for (std::size_t u = 0; u < units_.size(); ++u) {
      // Does anything before the rows of this module train, with rows of this sample?
      std::vector<bool> gradient_in(plan_.model.modules.size());
      for (std::size_t m = 0; m < plan_.model.modules.size(); ++m)
        walk_module(static_cast<std::int32_t>(u), ModuleId{m}, gradient_in);
    }
    return std::move(moves_);
  }

 private:
  const SamplePlace& place_of(ModuleId module, std::int32_t unit) const {
    return places_[plan_.group_of(module).index()][at(unit)];
  }
  MessageEnd end(ModuleId module, std::int32_t layer, std::int32_t unit) const {
    const SamplePlace& place = place_of(module, unit);
    return {stage_of_[place.replica.index()][module.index()][at(layer)], place.microbatch,
            place.part};
  }

  /// Of a module whose group does not have the unit, but its pieces or its sample, no rows are
  /// noted.
  void walk_module(std::int32_t unit, ModuleId module, std::vector<bool>& gradient_in) {
    const auto& spec = plan_.model.at(module);
    if (output_rows(plan_.model, module, units_.shape(unit)) == 0) return;
    const bool is_here = place_of(module, unit).replica.valid();
    bool gradient = gradient_in[module.index()];
    const auto count = static_cast<std::int32_t>(spec.layers.size());
    for (std::int32_t layer = 0; layer < count; ++layer) {
      if (layer > 0 && is_here)
        note({end(module, layer - 1, unit), end(module, layer, unit), module, false, unit,
              gradient});
      gradient = gradient || trains(plan_.model, {module, layer});
    }
    for (const ModuleId next : spec.next) {
      const bool is_next = place_of(next, unit).replica.valid();
      if (is_here)
        note({end(module, count - 1, unit),
              end(next, entry_layer(plan_.model, module, next),
                  is_next ? unit : units_.sample_of(unit)),
              module, true, unit, gradient});
      if (gradient) gradient_in[next.index()] = true;
    }
  }

  void note(RowMove move) {
    if (move.source.stage != move.destination.stage) moves_.push_back(move);
  }

  const ParallelPlan& plan_;
  const SampleUnits& units_;
  const std::vector<std::vector<SamplePlace>> places_;       // [group][unit].
  std::vector<std::vector<std::vector<StageId>>> stage_of_;  // [replica][module][layer].
  std::vector<RowMove> moves_;
};

/// Compares messages with the walk.
class MessageCheck {
 public:
  MessageCheck(const ParallelPlan& plan, const IterationPlan& iteration)
      : plan_(plan), iteration_(iteration), units_(iteration.samples, iteration.pieces) {}

  std::vector<Fault> faults() {
    for (std::size_t m = 0; m < iteration_.messages.size(); ++m)
      if (!exists(iteration_.messages[m]))
        report(FaultKind::unknown, m, "an end or a sample that does not exist");
    if (!faults_.empty()) return std::move(faults_);
    expected_ = Walk(plan_, iteration_, units_).moves();
    std::sort(expected_.begin(), expected_.end(),
              [](const RowMove& a, const RowMove& b) { return a.identity() < b.identity(); });
    carried_.resize(expected_.size());
    for (std::size_t m = 0; m < iteration_.messages.size(); ++m) check_message(m);
    for (std::size_t i = 0; i < expected_.size(); ++i)
      if (carried_[i] != 1)
        faults_.push_back({carried_[i] == 0 ? FaultKind::missing : FaultKind::duplicate,
                           plan_.at(expected_[i].source.stage).devices.front(),
                           "rows of " + text_of(expected_[i]),
                           std::to_string(carried_[i]) + " messages carry them"});
    return std::move(faults_);
  }

 private:
  bool exists(const MessageEnd& end) const {
    if (!end.stage.valid() || end.stage.index() >= plan_.stages.size()) return false;
    const MicrobatchList& list = iteration_.microbatches[plan_.at(end.stage).replica.index()];
    return end.microbatch.valid() && end.microbatch.index() < list.size() && end.part.valid() &&
           end.part.index() < list[end.microbatch.index()].parts.size();
  }
  bool exists(const Message& message) const {
    return message.module.valid() && message.module.index() < plan_.model.modules.size() &&
           exists(message.source) && exists(message.destination) &&
           std::all_of(message.samples.begin(), message.samples.end(), [&](std::int32_t sample) {
             return sample >= 0 && at(sample) < units_.size();
           });
  }

  void report(FaultKind kind, std::size_t message, std::string why) {
    const auto source = iteration_.messages[message].source.stage;
    const bool known = source.valid() && source.index() < plan_.stages.size();
    faults_.push_back({kind, known ? plan_.at(source).devices.front() : DeviceId{},
                       "message " + std::to_string(message), std::move(why)});
  }

  void check_message(std::size_t index) {
    const auto& message = iteration_.messages[index];
    const auto& module = plan_.model.at(message.module);
    TokenCount rows = 0;
    bool wants_gradient = false;
    for (const auto sample : message.samples) {
      const auto& shape = units_.shape(sample);
      rows += message.boundary ? output_rows(plan_.model, message.module, shape)
                               : hidden_rows(plan_.model, message.module, shape);
      const RowMove move{
          message.source, message.destination, message.module, message.boundary, sample, false};
      const auto found = std::lower_bound(
          expected_.begin(), expected_.end(), move,
          [](const RowMove& a, const RowMove& b) { return a.identity() < b.identity(); });
      if (found == expected_.end() || found->identity() != move.identity()) {
        report(FaultKind::unknown, index, "nothing calls for rows of " + text_of(move));
        continue;
      }
      ++carried_[static_cast<std::size_t>(found - expected_.begin())];
      wants_gradient |= found->wants_gradient;
    }
    if (rows == 0) report(FaultKind::unknown, index, "it carries no rows");
    if (rows != message.rows)
      report(FaultKind::dependency, index,
             "it says " + std::to_string(message.rows) + " rows, its samples have " +
                 std::to_string(rows));
    const auto width = message.boundary ? module.output_width : module.hidden_width;
    if (width != message.width)
      report(FaultKind::dependency, index,
             "it says " + std::to_string(message.width) + " columns, the module has " +
                 std::to_string(width));
    if (wants_gradient != message.has_backward)
      report(wants_gradient ? FaultKind::missing : FaultKind::unknown, index,
             wants_gradient ? "the gradient of its rows is wanted" : "nobody wants its gradient");
  }

  const ParallelPlan& plan_;
  const IterationPlan& iteration_;
  const SampleUnits units_;
  std::vector<RowMove> expected_;
  std::vector<std::int32_t> carried_;
  std::vector<Fault> faults_;
};

}  // namespace

std::vector<Fault> message_faults(const ParallelPlan& plan, const IterationPlan& iteration) {
  return MessageCheck(plan, iteration).faults();
}

}  // namespace troupe::scheduler
