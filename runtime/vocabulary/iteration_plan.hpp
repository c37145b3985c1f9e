// What happens in one iteration: which samples form which microbatch, which rows move where, and
// one totally ordered action list per device. The engine and the simulator execute the same value.

#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/route.hpp"
#include "runtime/vocabulary/sample_pieces.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe {

/// Everything that takes time. A device takes the next action of its list, waits for what the
/// action needs, and never skips ahead.
enum class ActionKind : std::uint8_t {
  forward,           ///< stage, microbatch, part.
  backward,          ///< Input and weight gradients together: stage, microbatch, part.
  backward_input,    ///< Input gradients only; weight gradients are kept for `backward_weight`.
  backward_weight,   ///< The weight gradients that `backward_input` left behind.
  offload,           ///< What a forward keeps goes to host memory: stage, microbatch, part.
  fetch,             ///< It comes back, before the backward.
  evict_parameters,  ///< stage: its parameters leave the device, which the llm has now.
  fetch_parameters,  ///< stage: they come back, before what computes with them.
  send,              ///< message: rows from its source to its destination. Does not wait.
  receive,           ///< message: waits for the rows.
  send_gradient,     ///< message: gradient of its rows, from destination to source.
  receive_gradient,  ///< message: waits for that gradient.
  relay,             ///< message: waits for rows on the device that they pass, hands them on.
  relay_gradient,    ///< message: the same with the gradient, on its way back.
  send_content,      ///< delivery: decoded content of samples. Does not wait.
  receive_content,   ///< delivery: waits for it.
  reduce_send,       ///< group: chunks of this device's gradients to who adds them up. No wait.
  reduce_partial,    ///< group: sums chunks over the holders of its node, for their owners.
  reduce,            ///< group, on an owner: sums its chunk in the plan's order, gives it back.
  reduce_relay,      ///< group: waits for owners' sums and hands them on to holders of its node.
  reduce_receive,    ///< group: waits for all other sums.
  commit,            ///< Report PREPARED, wait for COMMIT or DISCARD.
  fetch_state,       ///< group: its master and moments come from host memory. stage, or standby.
  offload_state,     ///< group: as its update has left them they go back there.
  optimizer_step,    ///< stage: update its parameters; none: those that it is on standby for. Of
                     ///< groups whose moments are in host memory: that group alone.
};

std::string_view to_string(ActionKind kind);  ///< Its name in plans, traces and messages.

/// Whether it moves what a part keeps between device and host memory, and computes nothing.
constexpr bool moves_activations(ActionKind kind) {
  return kind == ActionKind::offload || kind == ActionKind::fetch;
}

/// Whether it moves a group's master and moments.
constexpr bool moves_state(ActionKind kind) {
  return kind == ActionKind::offload_state || kind == ActionKind::fetch_state;
}

/// Whether it moves a stage's parameters.
constexpr bool moves_parameters(ActionKind kind) {
  return kind == ActionKind::evict_parameters || kind == ActionKind::fetch_parameters;
}

/// Whether it moves any of them between device and host memory.
constexpr bool moves_memory(ActionKind kind) {
  return moves_activations(kind) || moves_state(kind) || moves_parameters(kind);
}

using DeliveryId = Id<struct DeliveryTag>;  ///< Index into `IterationPlan::deliveries`.

/// One entry of a device's list. Fields that a kind does not use stay invalid.
struct Action {
  ActionKind kind = ActionKind::forward;
  StageId stage;
  MicrobatchId microbatch;
  PartId part;
  MessageId message;
  GroupId group;
  DeliveryId delivery = {};

  friend auto operator<=>(const Action&, const Action&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Action& x) {
    return f(x.kind, x.stage, x.microbatch, x.part, x.message, x.group, x.delivery);
  }
};

/// Samples that go forward together and get their backward together, in packing order: units
/// (`SampleUnits`), which are indices into `IterationPlan::samples`, and behind these, of encoders,
/// into `pieces`.
struct Part {
  std::vector<std::int32_t> samples;

  friend bool operator==(const Part&, const Part&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Part& x) {
    return f(x.samples);
  }
};
/// Parts that a stage of the llm, or an encoder, works on one after the other.
struct Microbatch {
  std::vector<Part> parts;

  friend bool operator==(const Microbatch&, const Microbatch&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Microbatch& x) {
    return f(x.parts);
  }
};

/// The microbatches of one replica, in order; empty where it got no samples. Groups of a pipeline
/// cut its samples in ways of their own (deferral); without deferral the lists are equal.
using MicrobatchList = std::vector<Microbatch>;

/// One end of a message: which part of which microbatch on which stage.
struct MessageEnd {
  StageId stage;
  MicrobatchId microbatch;
  PartId part;

  friend auto operator<=>(const MessageEnd&, const MessageEnd&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, MessageEnd& x) {
    return f(x.stage, x.microbatch, x.part);
  }
};

/// Rows that move between two stages: hidden rows inside a module, or output rows at a boundary.
/// Ends may lie in different replicas. Never empty; sizes follow from the plan alone.
struct Message {
  ModuleId module;        ///< Whose rows they are.
  bool boundary = false;  ///< True: output rows handed to the next module; false: hidden rows.
  MessageEnd source;
  MessageEnd destination;
  std::vector<std::int32_t> samples;  ///< Units, in row order.
  TokenCount rows = 0;
  std::int64_t width = 0;       ///< Columns.
  bool has_backward = false;    ///< False: no gradient comes back.
  Route route = Route::direct;  ///< Of its boundary; rows that stay on their devices take none.
  /// Rows and gradient pass through this device, which is none of either end; invalid: they do not.
  DeviceId relay = {};

  friend bool operator==(const Message&, const Message&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Message& x) {
    return f(x.module, x.boundary, x.source, x.destination, x.samples, x.rows, x.width,
             x.has_backward, x.route, x.relay);
  }
};

/// Decoded content of samples on its way to a stage whose node does not see their source of data:
/// what the stage reads of one part, of the samples that one node decodes for it. Never empty;
/// sizes follow from the samples alone (sample_content.hpp), and so does the form: pictures move as
/// the pixels of their patches.
struct Delivery {
  DeviceId from;  ///< Sends it; of the node that decodes the samples.
  MessageEnd destination;
  ModuleId encoder;                   ///< Whose media it carries; invalid: text, as token ids.
  std::vector<std::int32_t> samples;  ///< Units, in the order of the part.
  Bytes bytes;

  friend bool operator==(const Delivery&, const Delivery&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Delivery& x) {
    return f(x.from, x.destination, x.encoder, x.samples, x.bytes);
  }
};

/// The whole iteration. `actions[d]` is the list of device d of the `ParallelPlan`, and of all
/// devices that it leads (`ParallelPlan::leads`): each runs it as a rank of its own. The lists of
/// the led ones are empty.
struct IterationPlan {
  std::int64_t step = 0;                 ///< Optimizer step it belongs to, from 1.
  EpochNumber epoch_number = 0;          ///< Configuration it was planned for.
  std::vector<SampleShape> samples;      ///< In training order; a node has those of its own parts.
  std::vector<SamplePiece> pieces = {};  ///< Of samples that encoders take in pieces.
  TokenCount trained_tokens = 0;         ///< Of the whole global batch: the loss's one divisor.
  /// Per module, of the whole batch: what its layers' own losses are divided by. Empty: all samples
  /// are there.
  std::vector<std::int64_t> segments = {};
  /// Per replica. A sample stands in exactly one part of every module group, also where it has no
  /// rows there; or pieces of it do, which together have each item for encoders of the group once.
  /// The llm takes samples whole.
  std::vector<MicrobatchList> microbatches;
  std::vector<Message> messages;  ///< Per edge and pair of parts: the redistribution.
  /// What a node has of it holds the messages of its own stages, and those that pass it: message i
  /// is the one that actions call `message_ids[i]`, ascending. Empty: all are there, and message i
  /// is i.
  std::vector<MessageId> message_ids = {};
  /// Of samples whose source some nodes do not see; none where all see everything.
  std::vector<Delivery> deliveries = {};
  /// As `message_ids`: a node has those that it sends or receives.
  std::vector<DeliveryId> delivery_ids = {};
  std::vector<std::vector<Action>> actions;  ///< Per device.
  /// Per stage: the most microbatches that are ever between the begin of their forward and the end
  /// of their last backward, in host memory meanwhile or not. What the plan promises about memory;
  /// the checker holds it to that.
  std::vector<std::int32_t> max_in_flight;
  /// Of each module whose rows go to another module group, by (module, group).
  std::vector<BoundaryRoute> boundaries = {};

  /// The sample that a unit, no index of `samples`, is or is a piece of. REQUIRES: it is there.
  const SampleShape& sample(std::int32_t unit) const {
    const auto index = static_cast<std::size_t>(unit);
    return index < samples.size()
               ? samples[index]
               : samples[static_cast<std::size_t>(pieces[index - samples.size()].sample)];
  }

  /// Null when it is not there.
  const Message* find(MessageId id) const { return find_in(messages, message_ids, id); }
  const Delivery* find(DeliveryId id) const { return find_in(deliveries, delivery_ids, id); }
  const Message& at(MessageId id) const { return *find(id); }    ///< REQUIRES: it is there.
  const Delivery& at(DeliveryId id) const { return *find(id); }  ///< As above.
  MessageId id_of(std::size_t place) const {
    return message_ids.empty() ? MessageId{place} : message_ids[place];
  }

  friend bool operator==(const IterationPlan&, const IterationPlan&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, IterationPlan& x) {
    return f(x.step, x.epoch_number, x.samples, x.pieces, x.trained_tokens, x.microbatches,
             x.messages, x.message_ids, x.deliveries, x.delivery_ids, x.actions, x.max_in_flight,
             x.boundaries, x.segments);
  }

 private:
  template <class Entry, class EntryId>
  static const Entry* find_in(const std::vector<Entry>& entries, const std::vector<EntryId>& ids,
                              EntryId id) {
    if (ids.empty())
      return id.valid() && id.index() < entries.size() ? &entries[id.index()] : nullptr;
    const auto found = std::lower_bound(ids.begin(), ids.end(), id);
    if (found == ids.end() || *found != id) return nullptr;
    return &entries[static_cast<std::size_t>(found - ids.begin())];
  }
};

/// The units of a part. REQUIRES: the stage's replica has it.
inline const std::vector<std::int32_t>& samples_of(const ParallelPlan& plan,
                                                   const IterationPlan& iteration, StageId stage,
                                                   MicrobatchId microbatch, PartId part) {
  const MicrobatchList& list = iteration.microbatches[plan.at(stage).replica.index()];
  return list[microbatch.index()].parts[part.index()].samples;
}

}  // namespace troupe
