#include <string>

#include "app/doctor/probes.hpp"
#include "app/doctor/system_files.hpp"
#include "kernels/gpu_query.hpp"
#include "transport/nccl/nccl_library.hpp"

namespace troupe::app {

namespace fs = std::filesystem;

namespace {

/// A display adapter or accelerator of NVIDIA on the bus, or its driver, whatever CUDA says.
bool has_nvidia_card(const fs::path& root) {
  std::error_code code;
  if (fs::exists(root / "proc/driver/nvidia/version", code)) return true;
  for (const auto& device : fs::directory_iterator(root / "sys/bus/pci/devices", code)) {
    const auto vendor = text_of(device.path() / "vendor"), kind = text_of(device.path() / "class");
    if (vendor && kind && vendor->starts_with("0x10de") && kind->starts_with("0x03")) return true;
  }
  return false;
}

}  // namespace

GpuFacts probe_gpus(const fs::path& root) {
  GpuFacts facts;
  facts.has_card = has_nvidia_card(root);
  const auto gpus = kernels::query_gpus();
  const auto system = gpus.ok() ? kernels::query_gpu_system() : gpus.error();
  if (!system.ok()) {
    facts.why_none = system.error();
    return facts;
  }
  for (const auto& gpu : gpus.value()) facts.gpus.push_back({gpu.name, gpu.memory});
  facts.driver_cuda = system.value().driver_cuda;
  facts.toolkit_cuda = system.value().toolkit_cuda;
  facts.apart = system.value().apart;
  return facts;
}

NcclFacts probe_nccl() {
  const auto library = transport::NcclLibrary::load();
  if (!library) return {"", {}, library.error()};
  return {transport::nccl_version_text(library.value()->version()),
          transport::missing_parts(*library.value()),
          {}};
}

}  // namespace troupe::app
