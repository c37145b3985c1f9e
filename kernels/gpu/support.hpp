// Which GPUs the kernels of this folder run on.
//
// Internal to kernels/.

#pragma once

namespace troupe::kernels::gpu {

/// Whether the kernels run on this GPU (CUDA's number): compute capability 8.0 or above, and 160
/// KiB of shared memory for a thread block, as A100, H100 and B200 have; and code in
/// this build (CMAKE_CUDA_ARCHITECTURES). Asked once per GPU;
/// thread-safe. Of no GPU in a build without CUDA.
bool supports(int device);

}  // namespace troupe::kernels::gpu
