// Facts about a machine that `troupe doctor` judges. Plain values: `probes.hpp` looks them up,
// `checks.hpp` says what they mean, and tests plant every fault.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::app {

/// A number without bound, as limits and control groups say it.
inline constexpr std::int64_t kUnlimited = INT64_MAX;

struct BuildFacts {
  std::string version;     ///< `0.1.0 (5016c19b1a2f)`.
  std::string build_type;  ///< `release`.
  std::string sanitizers;  ///< Empty: none.
  std::string compiler;
  std::string libraries;
  std::string transports;  ///< Built in: `inproc, ucx`.
  bool has_cuda = false;   ///< The CUDA part is built in.
};

struct Gpu {
  std::string name;
  Bytes memory;
};

struct GpuFacts {
  bool has_card = false;  ///< The machine has a display adapter of NVIDIA, or its driver is loaded.
  std::vector<Gpu> gpus;
  Error why_none;                                  ///< Where there are none: what CUDA said.
  std::int32_t driver_cuda = 0, toolkit_cuda = 0;  ///< 13000 for 13.0.
  std::vector<std::pair<int, int>> apart;          ///< GPUs that cannot read each other's memory.
};

/// The NCCL library of this machine.
struct NcclFacts {
  std::string version;               ///< Such as 2.28.9; empty where there is none to use.
  std::vector<std::string> missing;  ///< What recovery over it does without, being old.
  Error why_none;                    ///< Where there is none to use.
};

/// A way for bytes, by UCX's names.
struct UcxWay {
  std::string transport, device;
  bool is_network = false;
};

struct UcxFacts {
  std::string version;        ///< That runs.
  std::string built_version;  ///< That the build was made with.
  std::vector<UcxWay> ways;
  std::optional<Error> failed;  ///< UCX did not say which there are.
  std::string tls = "all";      ///< UCX_TLS of the environment.
};

struct DoorFacts {
  std::string library;  ///< `OpenSSL 3.0.15`.
  Result<std::chrono::microseconds> handshake{Error{}};
};

struct HostNameFacts {
  std::string name;
  std::vector<std::string> addresses;  ///< What it resolves to; empty: to nothing.
};

struct NetworkInterface {
  std::string name;
  bool is_up = false;
  bool is_loopback = false;
  std::vector<std::string> addresses;
  std::int64_t speed_mbit = 0;  ///< 0: it does not say.
};

struct NetworkFacts {
  std::vector<NetworkInterface> interfaces;
  std::vector<UcxWay> ways;    ///< Of UCX.
  std::string wanted;          ///< cluster.data_interface or UCX_NET_DEVICES; empty: UCX chooses.
  std::string wanted_by;       ///< Which of them.
  bool is_one_machine = true;  ///< All nodes of the job are here, or there is no job.
};

struct ClockFacts {
  std::chrono::system_clock::time_point now, built;
  bool is_synchronised = false;
};

/// A folder that a job would write, or the nearest one above that is there.
struct FolderFacts {
  std::filesystem::path wanted, there;
  std::optional<Error> failed;   ///< Writing a file of some MiB, locking or renaming it failed.
  std::string file_system;       ///< `ext4`, `nfs`; `0x6969` where its name is not known.
  bool is_network = false;       ///< Shared with other machines by a server.
  bool is_memory = false;        ///< tmpfs: gone with the machine.
  bool is_of_container = false;  ///< overlay: gone with the container.
  bool has_locks = true;
  Bytes free;
  double write_mb_per_s = 0;  ///< Until it was on the disk (fsync).
};

struct SharedMemoryFacts {
  bool is_there = true;
  bool is_wanted = true;  ///< UCX_TLS of the environment does not exclude it.
  Bytes total, free;
  std::int64_t processes = 0;  ///< Of the job on this machine, its head too; 0: no job.
  std::int64_t leftovers = 0;  ///< Files of UCX there that no process has open.
  Bytes leftover_bytes;
};

struct LimitFacts {
  std::int64_t open_files = kUnlimited, open_files_hard = kUnlimited;
  std::int64_t locked_memory = kUnlimited;
  std::int64_t tasks_left = kUnlimited;  ///< Processes and threads that may be started.
  std::int64_t core_bytes = kUnlimited;
  bool has_infiniband = false;
  std::int64_t nodes = 0;  ///< Of the job; 0: no job.
};

struct MemoryFacts {
  Bytes total, available;
  std::optional<Bytes> group_limit;  ///< Of the control group, where it is below `total`.
  Bytes group_used;

  /// What may be taken without driving others out; below 0 where they have taken too much.
  Bytes left() const {
    return group_limit ? std::min(*group_limit - group_used, available) : available;
  }
};

struct CoreFacts {
  std::int64_t online = 1;      ///< Of the machine.
  std::int64_t allowed = 1;     ///< By affinity (taskset, cpusets).
  std::optional<double> quota;  ///< Cores that a control group allows on average.
  std::int64_t wanted = 0;      ///< Threads of the job's devices here; 0: no job.
};

/// Variables of the environment; none where one is not set.
struct ThreadVariables {
  std::optional<std::string> count, binding, affinity;  ///< OMP_NUM_THREADS, OMP_PROC_BIND,
                                                        ///< GOMP_CPU_AFFINITY.
};

struct ContainerFacts {
  std::string kind;  ///< `docker`, `podman`, `kubernetes`, `container`; empty: none is seen.
  bool has_own_process_ids = false;
  bool has_own_ipc = false;
  std::optional<std::int64_t> ptrace_scope;  ///< Of Yama; none: it is not there.
};

}  // namespace troupe::app
