#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdio>

#include "kernels/gpu_query.hpp"

namespace troupe::kernels {

namespace {

// What CUDA answers as an error of ours.
Error cuda_error(const char* call, cudaError_t code) {
  const std::string text = std::string(call) + ": " + cudaGetErrorString(code);
  if (code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver)
    return {Errc::unavailable, "no GPU can be used here (" + text + ")", "",
            "check `nvidia-smi` and CUDA_VISIBLE_DEVICES, or use cluster.device = \"cpu\""};
  return {Errc::unavailable, "CUDA failed (" + text + ")", "", "check `nvidia-smi`"};
}

std::string text_of(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits.data();
  }
  return text;
}

}  // namespace

bool has_cuda() { return true; }

Result<std::vector<GpuInfo>> query_gpus() {
  int count = 0;
  if (const auto code = cudaGetDeviceCount(&count); code != cudaSuccess)
    return cuda_error("cudaGetDeviceCount", code);
  if (count == 0) return cuda_error("cudaGetDeviceCount", cudaErrorNoDevice);
  std::vector<GpuInfo> gpus;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    if (const auto code = cudaGetDeviceProperties(&properties, index); code != cudaSuccess)
      return cuda_error("cudaGetDeviceProperties", code);
    gpus.push_back({index, properties.name, text_of(properties.uuid),
                    Bytes{static_cast<std::int64_t>(properties.totalGlobalMem)},
                    properties.multiProcessorCount, 10 * properties.major + properties.minor});
  }
  return gpus;
}

Result<GpuSystem> query_gpu_system() {
  GpuSystem system;
  if (const auto code = cudaDriverGetVersion(&system.driver_cuda); code != cudaSuccess)
    return cuda_error("cudaDriverGetVersion", code);
  if (const auto code = cudaRuntimeGetVersion(&system.toolkit_cuda); code != cudaSuccess)
    return cuda_error("cudaRuntimeGetVersion", code);
  int count = 0;
  if (const auto code = cudaGetDeviceCount(&count); code != cudaSuccess)
    return cuda_error("cudaGetDeviceCount", code);
  for (int from = 0; from < count; ++from)
    for (int to = from + 1; to < count; ++to) {
      int there = 0, back = 0;
      if (const auto code = cudaDeviceCanAccessPeer(&there, from, to); code != cudaSuccess)
        return cuda_error("cudaDeviceCanAccessPeer", code);
      if (const auto code = cudaDeviceCanAccessPeer(&back, to, from); code != cudaSuccess)
        return cuda_error("cudaDeviceCanAccessPeer", code);
      if (there == 0 || back == 0) system.apart.emplace_back(from, to);
    }
  return system;
}

}  // namespace troupe::kernels
