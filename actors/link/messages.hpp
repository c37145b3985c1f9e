// Values that actors exchange and that belong to no lower layer. They cross process borders.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/iteration/step_note.hpp"
#include "engine/setup/data_identity.hpp"
#include "engine/setup/plugin_identity.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/job_progress.hpp"
#include "runtime/vocabulary/model_state.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::actors {

using ByteString = std::vector<std::uint8_t>;

/// A node that has opened its data, its devices and its transport.
struct NodeReady {
  NodeId node;
  ByteString address;  ///< For `Transport::connect`.
  engine::DataIdentity data;
  std::vector<engine::PluginIdentity> plugins = {};  ///< That its process has loaded.
  std::vector<std::string> stage_kinds = {};         ///< That it knows: `engine::make_stage`.
  /// Bytes of each of its devices, had it the machine to itself; 0: as the head's own nodes.
  std::int64_t device_memory = 0;
  double probe_ms = 0;  ///< `engine::fastest_probe_ms` there; 0: it has not probed.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, NodeReady& x) {
    return f(x.node, x.address, x.data, x.plugins, x.stage_kinds, x.device_memory, x.probe_ms);
  }
};

/// What a node has kept of a job whose head it lost.
struct NodeHolding {
  /// Why a node is to leave the job, as it was told.
  struct Wish {
    std::string why;         ///< `stopped by SIGTERM`.
    bool by_signal = false;  ///< Its process ends in any case.

    template <class Inspector>
    friend typename Inspector::result_type inspect(Inspector& f, Wish& x) {
      return f(x.why, x.by_signal);
    }
  };

  NodeReady ready;
  EpochNumber epoch_number = 0;       ///< Of the layout whose state it has; 0: of none yet.
  EpochNumber fetched_epoch = 0;      ///< Of a newer one to which it could turn over; 0: of none.
  EpochNumber newest_epoch = 0;       ///< That it heard of.
  std::int64_t save_number = 0;       ///< Of the newest checkpoint that was ordered.
  ParallelPlan plan;                  ///< Of the layout whose state it has.
  std::vector<Standby> arriving;      ///< Of the plan's: no step was decided since they were added.
  std::vector<std::int32_t> devices;  ///< That have had a place: each says what it offers.
  JobProgress progress;               ///< After the last step that all its devices finished.
  /// The newest ones, ascending, up to that step; one more while that is still being finished.
  std::vector<engine::StepVerdict> verdicts;
  std::vector<Wish> leaves;  ///< One where the head before had not let it go yet; else none.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, NodeHolding& x) {
    return f(x.ready, x.epoch_number, x.fetched_epoch, x.newest_epoch, x.save_number, x.plan,
             x.arriving, x.devices, x.progress, x.verdicts, x.leaves);
  }
};

/// Exit code of a job that ends and may go on.
inline constexpr std::int32_t kResumable = 75;

/// A head that was killed has written nothing of so many of the newest steps, at most.
inline constexpr std::size_t kVerdictsKept = 16;

/// How a node introduces itself. Who comes may be of any build, older or newer: all up to `build`
/// keep their order, and what is new stands at the end.
struct NodeHello {
  std::string host;
  std::int32_t pid = 0;
  std::int32_t wanted_node = -1;          ///< Node id it was started as; -1: any free one.
  std::string build;                      ///< Version and commit; must be the supervisor's own.
  std::vector<NodeHolding> holding = {};  ///< One where it lost its head; else none.
  std::string run_id = {};                ///< The same: of the run that it is a node of.
  std::int64_t incarnation = 0;           ///< The same: of the head that it lost.
  bool is_heads_own = false;              ///< The head started this process, on its own machine.
  bool is_whole = true;  ///< Of who hears it: no other build's, whose rest cannot be read.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, NodeHello& x) {
    if constexpr (Inspector::writes_state) {
      if (auto error = f(x.host, x.pid, x.wanted_node, x.build)) return error;
      // CAF drops what cannot be read, and who waits for an answer would not hear of the build.
      if (f(x.holding, x.run_id, x.incarnation, x.is_heads_own)) {
        x = NodeHello{x.host, x.pid, x.wanted_node, x.build};
        x.is_whole = false;
      }
      return {};
    } else {
      return f(x.host, x.pid, x.wanted_node, x.build, x.holding, x.run_id, x.incarnation,
               x.is_heads_own);
    }
  }
};

/// What a node needs to begin: who it is and what the job is.
struct NodeWelcome {
  NodeId node;
  std::string resolved_job;  ///< The job file with every value, as text.
  /// Of the job, from now on; the node reads the job file later, while it opens its data.
  double heartbeat_interval_s = 0;
  double heartbeat_timeout_s = 0;
  double read_timeout_s = 0;   ///< Of `data`.
  double stall_timeout_s = 0;  ///< Of `train`.
  /// Absolute, on the head's machine: another head may be found there where it is shared.
  std::string run_folder = {};
  std::string run_id = {};  ///< By which another head of the run is told from other jobs' heads.
  std::int64_t incarnation = 0;  ///< Of the head: each that takes the run up counts on, from 1.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, NodeWelcome& x) {
    return f(x.node, x.resolved_job, x.heartbeat_interval_s, x.heartbeat_timeout_s,
             x.read_timeout_s, x.stall_timeout_s, x.run_folder, x.run_id, x.incarnation);
  }
};

/// A layout to be brought up, from nothing or from an older one.
struct Configuration {
  EpochNumber epoch_number = 0;
  ParallelPlan plan;
  std::vector<NodeReady> nodes;  ///< Also the head, which takes part as one more peer.
  /// How the model's state gets to where the plan wants it; a node is told of its own moves only.
  std::vector<StateMove> moves = {};
  /// The checkpoint from which moves without a source come; empty: from the seed.
  std::string checkpoint = {};
  JobProgress progress = {};  ///< Before the layout's first step.
  /// Of the plan's: their state may come during the first step, which nobody is PREPARED for
  /// before. None: no step begins until all state has come.
  std::vector<Standby> arriving = {};

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Configuration& x) {
    return f(x.epoch_number, x.plan, x.nodes, x.moves, x.checkpoint, x.progress, x.arriving);
  }
};

/// A checkpoint that is to be written. The state is that of `step` until the next optimizer step.
struct SaveOrder {
  std::int64_t number = 0;  ///< Of the save, counted by the supervisor.
  std::int64_t step = 0;
  std::string folder;         ///< Where the devices write their files; made by who comes first.
  std::vector<Shard> shards;  ///< Of this node, each with the one device that writes it.
  bool is_last = false;       ///< No step follows that a copy of the state would let go on.
  /// Of a job that failed, or has no layout: no step is decided any more, and the state is written
  /// only where it is finite.
  bool is_checked = false;

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, SaveOrder& x) {
    return f(x.number, x.step, x.folder, x.shards, x.is_last, x.is_checked);
  }
};

/// What became of a device's share of a checkpoint.
struct SaveReport {
  std::int64_t number = 0;
  DeviceSlot device;
  bool is_saved = false;
  Error error = {};  ///< Where it is not.
  std::string file = {};
  std::int64_t bytes = 0;
  std::string sha256 = {};
  double copy_ms = 0;
  double write_ms = 0;

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, SaveReport& x) {
    return f(x.number, x.device, x.is_saved, x.error, x.file, x.bytes, x.sha256, x.copy_ms,
             x.write_ms);
  }
};

/// A tensor that a device offers: final parameters, or kept gradients.
struct TensorOffer {
  std::string name;
  std::uint8_t dtype = 0;  ///< `at::ScalarType`.
  std::vector<std::int64_t> shape;
  std::uint64_t index = 0;  ///< Of the message that carries it (kind `state`).

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, TensorOffer& x) {
    return f(x.name, x.dtype, x.shape, x.index);
  }
};

/// Which tensors to offer.
enum class Collection : std::uint8_t { parameters, first_gradients };

/// All tensors of one node of a collection; their bytes follow over the transport to the head.
struct Offers {
  NodeId node;
  EpochNumber epoch_number = 0;
  std::vector<TensorOffer> tensors;

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Offers& x) {
    return f(x.node, x.epoch_number, x.tensors);
  }
};

/// What the job's owner asks of a running job.
struct ControlRequest {
  enum class Kind : std::uint8_t { status, checkpoint, stop, drain, layout };
  Kind kind = Kind::status;
  NodeId node = {};         ///< To be drained.
  std::string layout = {};  ///< The text of a layout file.
  std::string file = {};    ///< How its owner calls that file.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, ControlRequest& x) {
    return f(x.kind, x.node, x.layout, x.file);
  }
};

/// How a job ended.
struct JobEnd {
  std::int32_t exit_code = 0;
  std::string message;    ///< For stderr; empty where all went well.
  bool was_told = false;  ///< A node: the supervisor gave this reason, and its process prints it.
  /// The head: nodes that have not ended and will not by themselves.
  std::vector<NodeId> left = {};
  /// The job begins again from its newest checkpoint, for the n-th time from there, and so does
  /// this process. 0: it ends.
  std::int32_t again = 0;

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, JobEnd& x) {
    return f(x.exit_code, x.message, x.was_told, x.left, x.again);
  }
};

}  // namespace troupe::actors
