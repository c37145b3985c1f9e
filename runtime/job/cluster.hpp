// Where a job runs, and how it lasts: a part of the job's value (job.hpp).

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace troupe::job {

/// `[cluster]`.
struct Cluster {
  std::int32_t local_nodes = 1;  ///< Processes `troupe train` starts here. Default 1, or 0 where
                                 ///< `nodes` is given: then all are started by `troupe node`.
  std::int32_t nodes = 1;        ///< Nodes of the job; default local_nodes, never fewer.
  std::int32_t devices_per_node = 1;
  std::string device = "cpu";           ///< "cpu", "cuda", or a plug-in's.
  std::int32_t threads_per_device = 1;  ///< Operator threads of a CPU device.
  double device_memory_gib = 0;         ///< Memory of one device for planning; 0: ask the device.
  double device_tflops = 0;             ///< Peak of one at `train.dtype`, for MFU; 0: unknown.
  std::int32_t fault_tolerance = 0;     ///< Nodes that may fail at once without taking the last
                                        ///< holder of anything: all is kept on one node more.
  std::int32_t spares = 0;              ///< Nodes that stand by for the place of a lost one.
  std::int32_t min_nodes = 0;           ///< A job begins, and goes on, with so many; 0: it begins
                                        ///< with all, and goes on with those there are.
  std::string listen = "127.0.0.1:0";   ///< Where nodes join; port 0: any free one.
  std::filesystem::path key;            ///< What nodes show to join; empty: TROUPE_KEY, or one
                                        ///< made for the job, which then listens on the loopback.
  std::string data_interface;           ///< Network interface for tensors; empty: UCX chooses.
  std::string transport = "ucx";        ///< The only one between processes.
  std::string sums = "messages";        ///< Of gradients over holders: by messages of the
                                        ///< transport, or by calls to NCCL, "nccl" or
                                        ///< "nccl-chain", among devices of their own memory;
                                        ///< "auto": chosen before the job is planned.
  std::string rows = "messages";        ///< Between stages: by messages, or "nccl", by calls to
                                        ///< NCCL among devices of their own memory; "auto": calls
                                        ///< where all devices can.
  double sum_timeout_s = 120;           ///< A call to NCCL that takes longer hangs.
  double join_timeout_s = 60;           ///< Until all nodes are there; again until all are set up.
  double open_timeout_s = 600;          ///< Of a node, from its place in the job on, until it has
                                        ///< opened its data and devices.
  double heartbeat_interval_s = 0.5;    ///< Between two signs of life, of nodes and of the head.
  double heartbeat_timeout_s = 3;       ///< Silence after which a node, or the head, is lost.
  double head_timeout_s = 0;            ///< Nodes that lost the head keep their state so long for
                                        ///< another one; 0: they end, the head's own only after
                                        ///< 20 heartbeat timeouts where it is silent, and there.
                                        ///< Default 0, or 60 where nodes of other machines join.
  double stop_timeout_s = 10;           ///< From the word to end until nodes are ended by force.
  double drain_timeout_s = 120;         ///< From a signal to one node alone, which the head lets
                                        ///< leave, until it ends though it holds state still.

  friend bool operator==(const Cluster&, const Cluster&) = default;
};

/// `[checkpoint]`: what a job leaves on disk to go on from. What ends a job by a signal saves too.
struct Checkpointing {
  std::int64_t every_steps = 0;  ///< 0: not by steps.
  double every_minutes = 0;      ///< 0: not by time.
  std::int32_t keep_last = 3;    ///< Older ones are removed; 0: none is.
  std::filesystem::path dir;  ///< Empty: `checkpoints` in the run folder. Every node writes there.
  double timeout_s = 1800;    ///< A save that takes longer is given up; training goes on.

  /// Saved by itself, and at the end.
  bool is_regular() const { return every_steps > 0 || every_minutes > 0; }
  friend bool operator==(const Checkpointing&, const Checkpointing&) = default;
};

/// `[recovery]`: what a job does about losses that its nodes cannot make up for, and about nodes
/// that slow down.
struct Recovery {
  bool from_checkpoint = true;  ///< It begins again from its newest checkpoint by itself.
  /// It waits so long for nodes that join: then, below `cluster.min_nodes`, where no layout fits
  /// the nodes that are left, and where these are predicted to lose more samples than a wait for
  /// one that is on its way.
  double wait_for_nodes_s = 300;
  bool drain_slow = false;  ///< A node under half its usual speed for long leaves the job.

  friend bool operator==(const Recovery&, const Recovery&) = default;
};

}  // namespace troupe::job
