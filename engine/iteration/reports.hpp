// What devices tell the supervisor about an iteration, and what it decides. Values that travel.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/observe/trace_event.hpp"
#include "runtime/observers/observing.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

/// Squared 2-norm of a chunk of a group's reduced gradient, measured by its owner alone, so that
/// each element counts once.
struct GroupNorm {
  GroupId group;
  double squared = 0;
  bool finite = true;
  std::int32_t chunk = 0;  ///< Of `sum_chunks`.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, GroupNorm& x) {
    return f(x.group, x.squared, x.finite, x.chunk);
  }
};

/// Loss of one part as the stage with the head computed it, before division by the global count.
struct PartLoss {
  ReplicaId replica;  ///< Of the llm.
  MicrobatchId microbatch;
  PartId part;
  double sum = 0;  ///< Of the token losses; not finite where a sample's loss is not.
  std::vector<std::string> nonfinite_samples;  ///< Ids of samples whose loss is NaN or infinite.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, PartLoss& x) {
    return f(x.replica, x.microbatch, x.part, x.sum, x.nonfinite_samples);
  }
};

/// What the layers of one stage add to the loss by a part (models/auxiliary_loss.hpp).
struct PartAuxiliary {
  std::string name;  ///< `MODULE.NAME`.
  StageId stage;
  MicrobatchId microbatch;
  PartId part;
  double value = 0;  ///< Weighted, and divided by the segments of the batch.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, PartAuxiliary& x) {
    return f(x.name, x.stage, x.microbatch, x.part, x.value);
  }
};

/// PREPARED of one device: every group it holds has its reduced gradient.
struct Prepared {
  std::int64_t step = 0;
  EpochNumber epoch_number = 0;
  DeviceId device;
  std::vector<GroupNorm> norms;
  std::vector<PartLoss> losses;
  std::vector<PartAuxiliary> auxiliary = {};

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Prepared& x) {
    return f(x.step, x.epoch_number, x.device, x.norms, x.losses, x.auxiliary);
  }
};

/// A stage of one device threw, or never returns, or the device itself failed: its step is lost
/// there, with nothing wrong elsewhere. Not where memory ran out, of which others would have no
/// more with its work.
struct FailedWork {
  std::int64_t step = 0;  ///< 0: none ran, as the layout came up.
  EpochNumber epoch_number = 0;
  std::vector<std::string> samples = {};  ///< Ids, of the part; none: it was work for no one part.
  std::string thrown = {};                ///< The first line of what the exception says; the same
                                          ///< words wherever a stage never returns.
  Error error = {};                       ///< The same with stage, step, device and samples.
  /// By the device (an uncorrectable memory error, one that makes it unusable for the process), or
  /// by what connects it with others: no word on what it computed.
  bool by_device = false;

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, FailedWork& x) {
    return f(x.step, x.epoch_number, x.samples, x.thrown, x.error, x.by_device);
  }
};

/// Work that a device has been at for long: a stage may never return.
struct LongWork {
  DeviceId device;
  double seconds = 0;    ///< For so long when this was told; >= 0.
  FailedWork work = {};  ///< As what it counts where nobody waits for it any longer.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, LongWork& x) {
    return f(x.device, x.seconds, x.work);
  }
};

/// The same of all devices of a node; none: what was told before has returned.
struct LongWorks {
  std::vector<LongWork> works;

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, LongWorks& x) {
    return f(x.works);
  }
};

/// A message for which a device waits, by the action that sends it.
struct AwaitedMessage {
  DeviceId from;        ///< In whose list that action is.
  Action sent_in = {};  ///< Its kind, with its message, delivery or group alone.

  friend bool operator==(const AwaitedMessage&, const AwaitedMessage&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, AwaitedMessage& x) {
    return f(x.from, x.sent_in);
  }
};

/// A device that goes no further in its list before others have done something.
struct LongWait {
  DeviceId device;
  std::int64_t step = 0;
  EpochNumber epoch_number = 0;
  std::int64_t next_action = 0;  ///< Place in its list; what is before it is done, and was sent.
  std::vector<AwaitedMessage> awaited = {};  ///< Not there yet; none: for no message.
  double seconds = 0;                        ///< For so long when this was told; >= 0.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, LongWait& x) {
    return f(x.device, x.step, x.epoch_number, x.next_action, x.awaited, x.seconds);
  }
};

/// A node of which nothing has come for long, no state and no sign that it lives, while state is
/// copied between it and the node that tells.
struct SilentPeer {
  NodeId peer;
  EpochNumber epoch_number = 0;  ///< Of the layout that wants the state.
  double seconds = 0;            ///< For so long when this was told; >= 0.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, SilentPeer& x) {
    return f(x.peer, x.epoch_number, x.seconds);
  }
};

/// Waits of all devices of a node, and whom it does not hear; none: what was told before is over.
struct LongWaits {
  std::vector<LongWait> waits;
  std::vector<SilentPeer> silent = {};

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, LongWaits& x) {
    return f(x.waits, x.silent);
  }
};

/// COMMIT or DISCARD for one step, the same for every device.
struct Decision {
  std::int64_t step = 0;
  bool commit = false;
  double clip = 1;           ///< Factor on the reduced gradients, in (0, 1].
  double learning_rate = 0;  ///< Of the optimizer section; modules with their own scale it.
  std::string reason;        ///< Why it was discarded; empty for COMMIT.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Decision& x) {
    return f(x.step, x.commit, x.clip, x.learning_rate, x.reason);
  }
};

/// Hash of a group's parameters at one holder after the step.
struct HolderHash {
  GroupId group;
  /// Index into `ParameterGroup::uses`: the first one there; behind them: it is on standby.
  std::int32_t holder = 0;
  std::uint64_t hash = 0;

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, HolderHash& x) {
    return f(x.group, x.holder, x.hash);
  }
};

/// What a device did in one iteration.
struct DeviceReport {
  std::int64_t step = 0;
  EpochNumber epoch_number = 0;
  DeviceId device;
  std::vector<observe::TraceEvent> events;  ///< Every action of the list, in order.
  std::vector<HolderHash> hashes;  ///< Only where the job asks for them, and after a COMMIT.
  Bytes peak_activations;
  Bytes peak_received;        ///< Largest sum of posted and not yet used receives.
  double stall_ms = 0;        ///< Its optimizer step waited so long for a checkpoint to be copied.
  observers::Tally observed;  ///< Of all devices of its node.
  Bytes peak_offloaded = {};  ///< Of activations and moments, in host memory meanwhile.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, DeviceReport& x) {
    return f(x.step, x.epoch_number, x.device, x.events, x.hashes, x.peak_activations,
             x.peak_received, x.stall_ms, x.observed, x.peak_offloaded);
  }
};

}  // namespace troupe::engine
