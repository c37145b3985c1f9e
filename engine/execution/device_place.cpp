#include "engine/execution/device_place.hpp"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe::engine {

namespace {

/// The part of LibTorch that knows NVIDIA's GPUs; it lies beside the others, and registers itself.
constexpr const char* kCudaLibrary = "libtorch_cuda.so";
/// Set by the program before it has threads (app/main.cpp).
constexpr const char* kWorkspace = "CUBLAS_WORKSPACE_CONFIG";

Error no_device(const std::string& name, const std::string& why, std::string fix) {
  return {Errc::unavailable, "this process has no device '" + name + "': " + why, "cluster.device",
          std::move(fix)};
}

/// What sums of products take from the environment, which LibTorch reads at the first of them.
Status check_workspace() {
  const char* workspace = getenv(kWorkspace);
  const std::string said = workspace == nullptr ? "" : workspace;
  if (said == ":4096:8" || said == ":16:8") return Done{};
  return no_device(
      "cuda",
      std::string("with ") + kWorkspace + "='" + said + "' its sums may differ from run to run",
      std::string("set it to :4096:8, or leave it unset; or write train.deterministic = false"));
}

/// Looks whether it is there without LibTorch's own `hasCUDA`, whose answer "no" is kept for good.
Status load_cuda() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const bool is_there = c10::impl::hasDeviceGuardImpl(c10::kCUDA);
  if (!is_there && dlopen(kCudaLibrary, RTLD_NOW | RTLD_GLOBAL) == nullptr)
    return no_device("cuda", std::string("its part of LibTorch cannot be loaded: ") + dlerror(),
                     "install LibTorch with CUDA and the libraries it needs, or use device = "
                     "\"cpu\"");
  return Done{};
}

}  // namespace

Result<c10::Device> find_place(const std::string& name, std::int32_t index) {
  if (name == "cpu") return c10::Device(c10::kCPU);
  if (name == "cuda")
    if (auto loaded = load_cuda(); !loaded.ok()) return std::move(loaded).error();
  std::optional<c10::Device> named;
  try {
    named = c10::Device(name);
  } catch (const std::exception&) {
  }
  if (!named || named->has_index() || !at::isAccelerator(named->type()))
    return no_device(name, "LibTorch knows no accelerator of that name",
                     "use \"cpu\" or \"cuda\", or name the library that brings it in "
                     "plugins.libraries");
  const c10::DeviceType type = named->type();
  const auto count =
      c10::impl::hasDeviceGuardImpl(type) ? c10::impl::getDeviceGuardImpl(type)->deviceCount() : 0;
  if (count > 0) return c10::Device(type, static_cast<c10::DeviceIndex>(index % count));
  return no_device(name, "none is there, or its driver does not answer",
                   "look at the driver (`troupe doctor`), or use device = \"cpu\"");
}

Status choose_operators(c10::Device place, bool deterministic) {
  if (place.is_cpu()) return Done{};
  if (place.is_cuda() && deterministic)
    if (auto fits = check_workspace(); !fits.ok()) return fits;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  at::Context& context = at::globalContext();
  // Before the rule: nothing is filled only to show that it was not. Where all is as it should be
  // nothing is written, since other devices may compute.
  if (context.deterministicFillUninitializedMemory())
    context.setDeterministicFillUninitializedMemory(false);
  if (context.deterministicAlgorithms() != deterministic)
    context.setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  return Done{};
}

Result<c10::Device> usable_place(const std::string& name, std::int32_t index, bool deterministic) {
  auto place = find_place(name, index);
  if (place.ok())
    if (auto chosen = choose_operators(place.value(), deterministic); !chosen.ok())
      return std::move(chosen).error();
  return place;
}

std::int32_t device_number(DeviceSlot slot, bool is_heads_own, std::int32_t devices_per_node) {
  return (is_heads_own ? slot.node.value * devices_per_node : 0) + slot.local_index;
}

}  // namespace troupe::engine
