#include <string>

#include "app/doctor/checks.hpp"

namespace troupe::app {

namespace {

/// 13000 as `13.0`.
std::string cuda_words(std::int32_t version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string gpu_words(const GpuFacts& facts) {
  const auto count = facts.gpus.size();
  return std::to_string(count) + " x " + facts.gpus.front().name + ", " +
         size_words(facts.gpus.front().memory) + ", driver for CUDA " +
         cuda_words(facts.driver_cuda);
}

}  // namespace

Finding check_build(const BuildFacts& facts) {
  const std::string found = facts.version + ", " + facts.build_type +
                            (facts.sanitizers.empty() ? "" : " with " + facts.sanitizers) + ", " +
                            facts.compiler + "; " + facts.libraries + "; transports " +
                            facts.transports +
                            (facts.has_cuda ? "; CUDA kernels built in" : "; CUDA left out");
  if (facts.build_type == "release" && facts.sanitizers.empty()) return fine("build", found);
  return warning("build", found + "; several times slower than a release",
                 "train with `scripts/build release`");
}

Finding check_gpu(const GpuFacts& facts) {
  if (facts.gpus.empty()) {
    if (!facts.has_card) return fine("gpu", "none; jobs run on the CPU");
    return warning("gpu", "there is one of NVIDIA, and " + facts.why_none.message,
                   facts.why_none.fix);
  }
  if (facts.driver_cuda / 1000 < facts.toolkit_cuda / 1000)
    return warning("gpu",
                   gpu_words(facts) + ", older than the build's " + cuda_words(facts.toolkit_cuda),
                   "update the driver, or build with an older CUDA toolkit");
  if (!facts.apart.empty()) {
    const auto& [one, other] = facts.apart.front();
    return warning("gpu",
                   gpu_words(facts) + "; " + std::to_string(facts.apart.size()) +
                       (facts.apart.size() == 1 ? " pair (" : " pairs (first: ") +
                       std::to_string(one) + " and " + std::to_string(other) +
                       ") cannot read each other's memory, so that rows pass through the host's",
                   "see `nvidia-smi topo -p2p r`; an IOMMU or a virtual machine may forbid it");
  }
  return fine("gpu", gpu_words(facts) + (facts.gpus.size() > 1 ? ", all reach each other" : ""));
}

Finding check_nccl(const NcclFacts& facts) {
  if (facts.version.empty()) {
    return fine("nccl", "none: gradients are added up by messages, over UCX (" +
                            facts.why_none.message + ")");
  }
  std::string without;
  for (const auto& part : facts.missing) without += (without.empty() ? "" : ", ") + part;
  return fine("nccl", "library " + facts.version + " is here" +
                          (without.empty() ? "" : ", without " + without) +
                          "; for sums of gradients (cluster.sums = \"nccl\" or \"auto\")");
}

Finding check_nccl_rows(const NcclFacts& nccl, const GpuFacts& gpus) {
  const auto told = [](const std::string& how) {
    return fine("nccl rows", "rows between stages " + how);
  };
  if (gpus.gpus.empty())
    return told(
        "go by messages, over UCX: NCCL moves them between GPUs, and none can be used here");
  if (nccl.version.empty()) return told("go by messages, over UCX: " + nccl.why_none.message);
  if (gpus.gpus.size() == 1)
    return told(
        "can go by NCCL to other machines alone (cluster.rows = \"nccl\"): there is one GPU here, "
        "and NCCL takes no two devices of a job on it");
  return told("can go by NCCL between the " + std::to_string(gpus.gpus.size()) +
              " GPUs here (cluster.rows = \"nccl\" or \"auto\"), and to other machines (\"nccl\")");
}

}  // namespace troupe::app
