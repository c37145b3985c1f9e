#include "scheduler/iteration/deliveries.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "runtime/vocabulary/sample_content.hpp"

namespace troupe::scheduler {

namespace {

/// By node, the first list of actions of its devices.
using FirstLists = std::map<NodeId, DeviceId>;

FirstLists first_lists(const ParallelPlan& plan) {
  FirstLists found;
  for (std::size_t d = 0; d < plan.devices.size(); ++d)
    found.try_emplace(plan.devices[d].node, plan.lead_of(DeviceId{d}));
  return found;
}

Error nobody_decodes(const SampleShape& sample, NodeId node) {
  return {Errc::invalid_argument,
          "sample '" + sample.id + "' is read on node " + std::to_string(node.value) +
              ", which does not see its source of data, and no node of the layout decodes it",
          "plan_deliveries", "name as its decoder a node that sees it and has a device"};
}

/// What stages on other nodes may need of a sample.
Bytes decoded_bytes(const SampleShape& sample) {
  Bytes bytes{encoded_tokens(sample) * kContentTokenBytes};
  for (const ModuleMedia& media : sample.media) bytes += media_bytes(sample, media.module);
  return bytes;
}

bool seen_by_all(std::span<const SampleShape> samples) {
  return std::all_of(samples.begin(), samples.end(),
                     [](const SampleShape& sample) { return sample.seen_by.empty(); });
}

/// Collects the deliveries of one stage.
class StageDeliveries {
 public:
  StageDeliveries(const ParallelPlan& plan, const FirstLists& lists, const RowFlow& flow,
                  const SampleUnits& units, StageId stage, std::vector<Delivery>& out)
      : plan_(plan), first_lists_(lists), flow_(flow), units_(units), stage_(stage), out_(out) {}

  Status add(const MicrobatchList& list) {
    const ContentReads reads = content_reads(plan_, stage_);
    for (std::size_t m = 0; m < list.size(); ++m)
      for (std::size_t q = 0; q < list[m].parts.size(); ++q) {
        const MessageEnd end{stage_, MicrobatchId{m}, PartId{q}};
        for (const ModuleId encoder : reads.encoders)
          if (auto s = add(end, list[m].parts[q], encoder, {encoder}); !s.ok()) return s;
        if (auto s = add(end, list[m].parts[q], {}, reads.text); !s.ok()) return s;
      }
    return Done{};
  }

 private:
  /// `modules`: of these a sample has rows where it is read.
  Status add(const MessageEnd& end, const Part& part, ModuleId encoder,
             const std::vector<ModuleId>& modules) {
    const NodeId node = plan_.node_of(stage_);
    std::map<NodeId, Delivery> by_decoder;
    for (const std::int32_t unit : part.samples) {
      const SampleShape& sample = units_.shape(units_.sample_of(unit));
      const bool is_read = std::any_of(modules.begin(), modules.end(), [&](ModuleId module) {
        return flow_.output(module, unit) > 0;
      });
      if (!is_read || sample.is_seen_by(node)) continue;
      const auto from = first_lists_.find(sample.decoder);
      if (from == first_lists_.end() || !sample.is_seen_by(sample.decoder))
        return nobody_decodes(sample, node);
      Delivery& delivery = by_decoder[sample.decoder];
      delivery.from = from->second;
      delivery.samples.push_back(unit);
    }
    for (auto& [decoder, delivery] : by_decoder) {
      delivery.destination = end;
      delivery.encoder = encoder;
      delivery.bytes = content_bytes(delivery, units_);
      out_.push_back(std::move(delivery));
    }
    return Done{};
  }

  const ParallelPlan& plan_;
  const FirstLists& first_lists_;
  const RowFlow& flow_;
  const SampleUnits& units_;
  const StageId stage_;
  std::vector<Delivery>& out_;
};

}  // namespace

ContentReads content_reads(const ParallelPlan& plan, StageId stage) {
  ContentReads reads;
  for (const LayerRun& run : plan.at(stage).runs) {
    const ModuleSpec& module = plan.model.at(run.module);
    const bool begins = run.layers.begin == 0;
    const bool ends = run.layers.end == static_cast<std::int32_t>(module.layers.size());
    if (module.kind == ModuleKind::encoder && begins) reads.encoders.push_back(run.module);
    if (reads_text(module.kind) && (begins || (ends && module.kind == ModuleKind::llm)))
      reads.text.push_back(run.module);
  }
  return reads;
}

Status choose_decoders(const ParallelPlan& plan, std::vector<SampleShape>& samples) {
  if (seen_by_all(samples)) return Done{};
  const auto nodes = plan.nodes();
  std::map<NodeId, Bytes> loads;
  for (SampleShape& sample : samples) {
    sample.decoder = {};
    if (sample.seen_by.empty()) continue;
    std::erase_if(sample.seen_by, [&](NodeId node) { return !nodes.contains(node); });
    if (sample.seen_by.empty())
      return Error{
          Errc::infeasible, "no node of the layout sees the source of sample '" + sample.id + "'",
          "data.sources", "give a node of its data.sources[].nodes a device of the layout"};
    if (sample.seen_by.size() == nodes.size()) {
      sample.seen_by.clear();
      continue;
    }
    sample.decoder = *std::min_element(sample.seen_by.begin(), sample.seen_by.end(),
                                       [&](NodeId a, NodeId b) { return loads[a] < loads[b]; });
    loads[sample.decoder] += decoded_bytes(sample);
  }
  return Done{};
}

std::vector<SampleShape> of_no_layout(std::vector<SampleShape> samples) {
  for (SampleShape& sample : samples) {
    sample.seen_by.clear();
    sample.decoder = {};
  }
  return samples;
}

Result<std::vector<Delivery>> plan_deliveries(const ParallelPlan& plan, const RowFlow& flow,
                                              const std::vector<MicrobatchList>& microbatches,
                                              const SampleUnits& units) {
  std::vector<Delivery> deliveries;
  if (seen_by_all(units.shapes().first(units.whole()))) return deliveries;
  const FirstLists lists = first_lists(plan);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const auto& list = microbatches[plan.stages[s].replica.index()];
    auto added = StageDeliveries(plan, lists, flow, units, StageId{s}, deliveries).add(list);
    if (!added.ok()) return added.error();
  }
  std::stable_sort(deliveries.begin(), deliveries.end(), [](const Delivery& a, const Delivery& b) {
    return a.destination.microbatch < b.destination.microbatch;
  });
  return deliveries;
}

DeliveryActions::DeliveryActions(const std::vector<Delivery>& deliveries)
    : deliveries_(deliveries) {
  for (std::size_t i = 0; i < deliveries.size(); ++i) {
    by_destination_.emplace_back(i);
    by_sender_[deliveries[i].from].emplace_back(i);
  }
  std::stable_sort(by_destination_.begin(), by_destination_.end(), [&](DeliveryId a, DeliveryId b) {
    return deliveries_[a.index()].destination < deliveries_[b.index()].destination;
  });
}

std::vector<Action> DeliveryActions::sends(DeviceId device) const {
  std::vector<Action> actions;
  const auto own = by_sender_.find(device);
  if (own == by_sender_.end()) return actions;
  for (const DeliveryId delivery : own->second) {
    Action& action = actions.emplace_back();
    action.kind = ActionKind::send_content;
    action.delivery = delivery;
  }
  return actions;
}

std::vector<Action> DeliveryActions::receives(const MessageEnd& part) const {
  std::vector<Action> actions;
  auto next = std::lower_bound(by_destination_.begin(), by_destination_.end(), part,
                               [&](DeliveryId id, const MessageEnd& end) {
                                 return deliveries_[id.index()].destination < end;
                               });
  for (; next != by_destination_.end() && deliveries_[next->index()].destination == part; ++next) {
    Action& action = actions.emplace_back();
    action.kind = ActionKind::receive_content;
    action.stage = part.stage;
    action.delivery = *next;
  }
  return actions;
}

}  // namespace troupe::scheduler
