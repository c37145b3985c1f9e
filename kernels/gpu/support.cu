#include "kernels/gpu/support.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>

namespace troupe::kernels::gpu {

namespace {

constexpr int kCapability = 8;             // Tensor cores that take bf16, copies beside arithmetic.
constexpr int kSharedMemory = 160 * 1024;  // Attention's widest thread blocks take most of it.

__global__ void nothing() {}

// Whether this build holds code for the device.
bool holds_code(int device) {
  int before = 0;
  cudaFuncAttributes attributes{};
  const bool holds = cudaGetDevice(&before) == cudaSuccess &&
                     cudaSetDevice(device) == cudaSuccess &&
                     cudaFuncGetAttributes(&attributes, nothing) == cudaSuccess;
  cudaSetDevice(before);
  cudaGetLastError();  // Asked and answered: no error of what is launched next.
  return holds;
}

bool ask(int device) {
  int capability = 0, shared = 0;
  return cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device) ==
             cudaSuccess &&
         cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
             cudaSuccess &&
         capability >= kCapability && shared >= kSharedMemory && holds_code(device);
}

}  // namespace

bool supports(int device) {
  static std::array<std::atomic<int>, 64> known{};  // 0: not asked; 1: no; 2: yes.
  if (device < 0 || device >= static_cast<int>(known.size())) return false;
  auto& answer = known[static_cast<std::size_t>(device)];
  if (answer == 0) answer = ask(device) ? 2 : 1;
  return answer == 2;
}

}  // namespace troupe::kernels::gpu
