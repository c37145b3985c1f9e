// How LibTorch's allocator of GPUs is told which share of a GPU's memory its process may use.

#pragma once

#include <string>

namespace troupe::engine {

/// A variable of the environment that the allocator reads, and what it is to say.
struct AllocatorSettings {
  std::string variable;
  std::string text;
};

/// The settings that are there, with the share beside them; a share that they name comes before.
/// `cuda`, `general`: what PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF say, null where they are
/// not set. LibTorch reads the second where the first is not set (c10/cuda/CUDAAllocatorConfig.h).
/// Pure.
AllocatorSettings settings_with_share(const char* cuda, const char* general, double share);

}  // namespace troupe::engine
