#include "scheduler/check/delivery_check.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>

#include "runtime/vocabulary/index.hpp"
#include "runtime/vocabulary/module_rows.hpp"
#include "runtime/vocabulary/sample_content.hpp"
#include "scheduler/iteration/redistribution.hpp"

namespace troupe::scheduler {

namespace {

/// Content of one unit at one end; of text without an encoder.
using Reading = std::tuple<MessageEnd, ModuleId, std::int32_t>;

class DeliveryCheck {
 public:
  DeliveryCheck(const ParallelPlan& plan, const IterationPlan& iteration)
      : plan_(plan), iteration_(iteration), units_(iteration.samples, iteration.pieces) {}

  std::vector<Fault> faults() {
    for (std::size_t i = 0; i < iteration_.deliveries.size(); ++i)
      if (!exists(iteration_.deliveries[i]))
        report(FaultKind::unknown, i,
               "a device, an end, an encoder or a sample that does not exist");
    if (!faults_.empty()) return std::move(faults_);
    expect_all();
    for (std::size_t i = 0; i < iteration_.deliveries.size(); ++i) check(i);
    for (const auto& [reading, times] : wanted_)
      if (times != 1)
        faults_.push_back({times == 0 ? FaultKind::missing : FaultKind::duplicate,
                           plan_.at(std::get<0>(reading).stage).devices.front(), text_of(reading),
                           std::to_string(times) + " deliveries bring it"});
    return std::move(faults_);
  }

 private:
  std::string text_of(const Reading& reading) const {
    const auto& [end, encoder, unit] = reading;
    return (encoder.valid() ? "media for " + plan_.model.at(encoder).name : std::string("text")) +
           " of sample '" + iteration_.sample(unit).id + "' at stage " +
           std::to_string(end.stage.value);
  }

  bool exists(const Delivery& delivery) const {
    const MessageEnd& end = delivery.destination;
    if (!end.stage.valid() || end.stage.index() >= plan_.stages.size()) return false;
    const MicrobatchList& list = iteration_.microbatches[plan_.at(end.stage).replica.index()];
    const bool is_part = end.microbatch.valid() && end.microbatch.index() < list.size() &&
                         end.part.valid() &&
                         end.part.index() < list[end.microbatch.index()].parts.size();
    const bool is_device = delivery.from.valid() && delivery.from.index() < plan_.devices.size();
    const bool is_encoder =
        !delivery.encoder.valid() || delivery.encoder.index() < plan_.model.modules.size();
    return is_part && is_device && is_encoder &&
           std::all_of(delivery.samples.begin(), delivery.samples.end(),
                       [&](std::int32_t unit) { return unit >= 0 && at(unit) < units_.size(); });
  }

  void report(FaultKind kind, std::size_t delivery, std::string why) {
    const DeviceId from = iteration_.deliveries[delivery].from;
    const bool known = from.valid() && from.index() < plan_.devices.size();
    faults_.push_back(
        {kind, known ? from : DeviceId{}, "delivery " + std::to_string(delivery), std::move(why)});
  }

  /// Which stage of a replica has a layer.
  StageId stage_with(ReplicaId replica, ModuleId module, std::int32_t layer) const {
    for (const StageId stage : plan_.at(replica).stages)
      for (const LayerRun& run : plan_.at(stage).runs)
        if (run.module == module && run.layers.begin <= layer && layer < run.layers.end)
          return stage;
    return {};
  }

  void expect_all() {
    const auto places = sample_places(plan_, iteration_.microbatches, units_.size());
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const auto unit = static_cast<std::int32_t>(u);
      if (iteration_.sample(unit).seen_by.empty()) continue;
      for (std::size_t m = 0; m < plan_.model.modules.size(); ++m) {
        const ModuleSpec& module = plan_.model.modules[m];
        const SamplePlace& place = places[plan_.group_of(ModuleId{m}).index()][u];
        if (module.kind == ModuleKind::projector || !place.replica.valid()) continue;
        if (output_rows(plan_.model, ModuleId{m}, units_.shape(unit)) == 0) continue;
        const ModuleId media = module.kind == ModuleKind::encoder ? ModuleId{m} : ModuleId{};
        expect(place, ModuleId{m}, 0, media, unit);
        if (module.kind == ModuleKind::llm)
          expect(place, ModuleId{m}, static_cast<std::int32_t>(module.layers.size()) - 1, media,
                 unit);
      }
    }
  }

  void expect(const SamplePlace& place, ModuleId module, std::int32_t layer, ModuleId media,
              std::int32_t unit) {
    const StageId stage = stage_with(place.replica, module, layer);
    if (iteration_.sample(unit).is_seen_by(plan_.node_of(stage))) return;
    const MessageEnd end{stage, place.microbatch, place.part};
    wanted_.try_emplace(Reading{end, media, unit}, 0);
  }

  void check(std::size_t index) {
    const Delivery& delivery = iteration_.deliveries[index];
    if (delivery.samples.empty()) report(FaultKind::unknown, index, "it carries nothing");
    const NodeId sender = plan_.devices[delivery.from.index()].node;
    for (const std::int32_t unit : delivery.samples) {
      const Reading reading{delivery.destination, delivery.encoder, unit};
      const SampleShape& sample = iteration_.sample(unit);
      if (const auto found = wanted_.find(reading); found != wanted_.end())
        ++found->second;
      else
        report(FaultKind::unknown, index, "nothing calls for " + text_of(reading));
      if (sample.decoder != sender || !sample.is_seen_by(sender))
        report(
            FaultKind::dependency, index,
            "node " + std::to_string(sender.value) + " does not decode sample '" + sample.id + "'");
    }
    if (const Bytes bytes = content_bytes(delivery, units_); bytes != delivery.bytes)
      report(FaultKind::dependency, index,
             "it says " + std::to_string(delivery.bytes.count()) + " bytes, its samples have " +
                 std::to_string(bytes.count()));
  }

  const ParallelPlan& plan_;
  const IterationPlan& iteration_;
  const SampleUnits units_;
  std::map<Reading, std::int32_t> wanted_;  ///< How many deliveries bring it.
  std::vector<Fault> faults_;
};

}  // namespace

std::vector<Fault> delivery_faults(const ParallelPlan& plan, const IterationPlan& iteration) {
  return DeliveryCheck(plan, iteration).faults();
}

}  // namespace troupe::scheduler
