#include "kernels/gpu_query.hpp"

namespace troupe::kernels {

namespace {

Error no_cuda() {
  return {Errc::unavailable, "this build has no CUDA part, so it cannot use a GPU", "",
          "install the CUDA toolkit (nvcc) and build again, or use cluster.device = \"cpu\""};
}

}  // namespace

bool has_cuda() { return false; }

Result<std::vector<GpuInfo>> query_gpus() { return no_cuda(); }

Result<GpuSystem> query_gpu_system() { return no_cuda(); }

}  // namespace troupe::kernels
