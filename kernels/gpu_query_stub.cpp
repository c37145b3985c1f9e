#include "kernels/gpu_query.hpp"

namespace troupe::kernels {

Result<std::vector<GpuInfo>> query_gpus() {
  return Error{Errc::unavailable, "this build has no CUDA part, so it cannot use a GPU", "",
               "install the CUDA toolkit (nvcc) and build again, or use cluster.device = \"cpu\""};
}

}  // namespace troupe::kernels
