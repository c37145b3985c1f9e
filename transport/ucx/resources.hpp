// What UCX finds on this machine, for whoever looks at the machine before a job runs.
//
// Opens nothing that stays open; allocates no shared memory.

#pragma once

#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::transport {

/// Of UCX's transports that for the memory of NVIDIA's GPUs: it is there where UCX was built with
/// CUDA and finds a GPU. A list of transports (UCX_TLS) has to name it.
inline constexpr const char* kCudaTransport = "cuda_copy";

/// A way for bytes that UCX offers here.
struct UcxResource {
  std::string transport;    ///< As UCX_TLS calls it: `tcp`, `posix`, `cma`, `rc_verbs`.
  std::string device;       ///< As UCX_NET_DEVICES calls it: `eth0`, `mlx5_0:1`, `memory`.
  bool is_network = false;  ///< Reaches other machines, or this one through a network interface.

  friend bool operator==(const UcxResource&, const UcxResource&) = default;
};

/// The version of the library that runs; a build may have been made with another one.
std::string ucx_version();

/// All of them, in UCX's order; what the environment (UCX_TLS) excludes too. Takes as long as UCX
/// takes to start.
/// Errors: transport_failed, with UCX's reason.
Result<std::vector<UcxResource>> ucx_resources();

}  // namespace troupe::transport
