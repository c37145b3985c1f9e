// The part of NCCL's binary interface that is used here, declared by ourselves: the library is
// opened at run time, so that a build needs neither its header nor the library.
//
// Names, numbers and layouts are those of NCCL 2.28.9, and older libraries read the same fields
// from the front. tests/transport/nccl/nccl_header.cpp holds this file against NCCL's own header
// where a machine has one.

#pragma once

#include <climits>
#include <cstddef>

namespace troupe::transport::nccl {

struct CommState;
using Comm = CommState*;  ///< A communicator; null: none.
using Stream = void*;     ///< CUDA's stream handle.

/// What a call returns, and the state of a communicator.
enum class Code : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,  ///< A peer ended, or its connection.
  in_progress = 7,   ///< A call without waiting goes on: ask `get_async_error` until it is over.
};

enum class DataType : int { int8 = 0, int64 = 4, float32 = 7, float64 = 8, bfloat16 = 9 };
enum class ReduceOp : int { sum = 0 };

constexpr int kNoColor = -1;       ///< To `split`: this rank gets no communicator.
constexpr int kShrinkAbort = 1;    ///< To `shrink`: end the parent's operations first.
constexpr int kRevokeDefault = 0;  ///< To `revoke`: there are no flags yet.

/// What ranks that meet for the first time know each other by.
struct UniqueId {
  char internal[128];
};

/// Settings of a communicator. What is INT_MIN or null is left to NCCL.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 22809;
  int blocking = INT_MIN;  ///< 0: no call waits for a peer.
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
  const char* comm_name = nullptr;  ///< Shown in NCCL's own log.
  int collnet_enable = INT_MIN;
  int cta_policy = INT_MIN;
  int shrink_share = INT_MIN;
  int nvls_ctas = INT_MIN;
  int channels_per_net_peer = INT_MIN;
  int nvlink_centric_sched = INT_MIN;
};

/// The functions, by their names without `nccl`.
struct Functions {
  Code (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(Code code) = nullptr;
  Code (*get_unique_id)(UniqueId* id) = nullptr;
  Code (*comm_init_rank_config)(Comm* made, int ranks, UniqueId id, int rank,
                                Config* config) = nullptr;
  Code (*comm_split)(Comm parent, int color, int key, Comm* made, Config* config) = nullptr;
  Code (*comm_get_async_error)(Comm comm, Code* state) = nullptr;
  Code (*comm_abort)(Comm comm) = nullptr;
  Code (*group_start)() = nullptr;
  Code (*group_end)() = nullptr;
  Code (*all_reduce)(const void* from, void* to, std::size_t count, DataType type, ReduceOp op,
                     Comm comm, Stream stream) = nullptr;
  Code (*reduce)(const void* from, void* to, std::size_t count, DataType type, ReduceOp op,
                 int root_rank, Comm comm, Stream stream) = nullptr;
  Code (*broadcast)(const void* from, void* to, std::size_t count, DataType type, int root_rank,
                    Comm comm, Stream stream) = nullptr;
  Code (*send)(const void* from, std::size_t count, DataType type, int to_rank, Comm comm,
               Stream stream) = nullptr;
  Code (*recv)(void* to, std::size_t count, DataType type, int from_rank, Comm comm,
               Stream stream) = nullptr;
  // Null where the library is older than these.
  Code (*comm_shrink)(Comm parent, int* excluded_ranks, int excluded_count, Comm* made,
                      Config* config, int flags) = nullptr;  ///< From 2.27.3.
  Code (*comm_revoke)(Comm comm, int flags) = nullptr;       ///< From 2.28.7.
};

}  // namespace troupe::transport::nccl
