// Which GPUs this process can use. Thread-safe; creates no context and reserves no memory of a GPU
// beyond what asking its driver takes.
//
// gpu_query.cu answers where the CUDA toolkit was found, gpu_query_stub.cpp otherwise.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::kernels {

/// One GPU, as CUDA numbers them in this process (CUDA_VISIBLE_DEVICES applies).
struct GpuInfo {
  int index = 0;
  std::string name;  ///< `NVIDIA H100 80GB HBM3`.
  std::string uuid;  ///< `GPU-` and 36 characters, as `nvidia-smi -L` has it: no other GPU's.
  Bytes memory;      ///< All of it, free or not.
  int multiprocessors = 0;
  int capability = 0;  ///< 10 * major + minor: 90 for Hopper.
};

/// Whether this build has the CUDA part.
bool has_cuda();

/// Every GPU, in CUDA's order; at least one.
///
/// Errors:
/// - unavailable: this build has no CUDA part, there is no driver, or no GPU. The message says
///   which, the fix what to do.
Result<std::vector<GpuInfo>> query_gpus();

/// What the GPUs of this process have in common.
struct GpuSystem {
  int driver_cuda = 0;                     ///< Newest CUDA that the driver runs: 13000 for 13.0.
  int toolkit_cuda = 0;                    ///< CUDA that this build was made with, likewise.
  std::vector<std::pair<int, int>> apart;  ///< Pairs (lower index first) that cannot read each
                                           ///< other's memory.
};

/// Errors: as `query_gpus`.
Result<GpuSystem> query_gpu_system();

}  // namespace troupe::kernels
