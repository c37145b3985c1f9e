#include <dlfcn.h>

#include <memory>
#include <string>

#include "app/doctor/probes.hpp"
#include "app/doctor/system_files.hpp"
#include "kernels/gpu_query.hpp"

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
  facts.has_cuda = kernels::has_cuda();
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
  const std::unique_ptr<void, int (*)(void*)> library(dlopen("libnccl.so.2", RTLD_LAZY), &dlclose);
  if (!library) return std::nullopt;
  int version = 0;
  using GetVersion = int (*)(int*);
  if (const auto ask = reinterpret_cast<GetVersion>(dlsym(library.get(), "ncclGetVersion")))
    if (ask(&version) != 0) version = 0;
  return version;
}

}  // namespace troupe::app
