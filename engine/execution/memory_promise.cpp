#include "engine/execution/memory_promise.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "engine/execution/allocator_settings.hpp"
#include "kernels/gpu_query.hpp"
#include "scheduler/layout/layout_request.hpp"
#include "scheduler/simulate/predicted_costs.hpp"

namespace troupe::engine {

namespace {

std::string text_of(Bytes bytes) {
  return scheduler::byte_text(static_cast<double>(bytes.count()));
}

/// What a device may use, as the job says it.
Bytes promised_by(const job::Cluster& cluster) {
  return Bytes{static_cast<std::int64_t>(cluster.device_memory_gib * 1024 * 1024 * 1024)};
}

}  // namespace

MemoryPromise memory_promise(const job::Job& job, const ParallelPlan& plan, DeviceId device) {
  MemoryPromise promise{promised_by(job.cluster), {}};
  if (!promise.is_given()) return promise;
  scheduler::PredictionOptions options;
  options.dtype = job.train.dtype;
  const auto of_stages = scheduler::stage_state_bytes(plan, options);
  double state = scheduler::standby_state_bytes(plan, options)[device.index()];
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const DeviceId own : plan.stages[s].devices)
      if (own == device) state += of_stages[s];
  promise.state = Bytes{static_cast<std::int64_t>(state)};
  return promise;
}

Status check_promise(const MemoryPromise& promise, Bytes activations, const std::string& where) {
  const double held = static_cast<double>((promise.state + activations).count());
  if (!promise.is_given() || held <= kPromiseSlack * static_cast<double>(promise.device.count()))
    return Done{};
  return Error{Errc::infeasible,
               "activations take " + text_of(activations) + " " + where + ", beside " +
                   text_of(promise.state) +
                   " of parameters, gradients and optimizer; the plan "
                   "promised to keep all of it within " +
                   text_of(promise.device),
               "cluster.device_memory_gib",
               "raise it where the device has more; else raise train.microbatches, set "
               "train.recompute = true, or measure layers anew (`troupe profile`)"};
}

std::string promise_words(const MemoryPromise& promise) {
  if (!promise.is_given()) return "";
  return " (by its plan a device has " + text_of(promise.device) + ", of which " +
         text_of(promise.state) + " are parameters, gradients and optimizer)";
}

std::string memory_fix(const MemoryPromise& promise, bool is_kept) {
  std::string fix = kMemoryFix;
  if (!promise.is_given()) return fix;
  return fix + (is_kept
                    ? "; or raise cluster.device_memory_gib, beyond which a device gets nothing, "
                      "where it has more"
                    : "; or lower cluster.device_memory_gib to what there is for each device, so "
                      "that the job is planned for that");
}

Error with_promise(Error error, const MemoryPromise& promise) {
  if (error.code != Errc::infeasible || !error.fix.empty()) return error;
  // As a GPU's allocator says it, which keeps to the promise.
  const bool is_kept = error.message.find("out of memory") != std::string::npos;
  error.message += promise_words(promise);
  error.fix = memory_fix(promise, is_kept);
  return error;
}

double memory_share(Bytes promised, Bytes memory, int devices, int gpus) {
  const int on_one = (devices + gpus - 1) / gpus;
  return std::min(
      1.0, on_one * static_cast<double>(promised.count()) / static_cast<double>(memory.count()));
}

void limit_gpu_memory(const job::Cluster& cluster) {
  if (cluster.device != "cuda" || cluster.device_memory_gib <= 0) return;
  const auto gpus = kernels::query_gpus();
  if (!gpus.ok()) return;
  Bytes least = gpus.value().front().memory;
  for (const auto& gpu : gpus.value()) least = std::min(least, gpu.memory);
  const double share = memory_share(promised_by(cluster), least, cluster.devices_per_node,
                                    static_cast<int>(gpus.value().size()));
  // Once in a process: devices are made on threads of their own.
  static std::once_flag is_set;
  std::call_once(is_set, [share] {
    const AllocatorSettings settings = settings_with_share(
        std::getenv("PYTORCH_CUDA_ALLOC_CONF"), std::getenv("PYTORCH_ALLOC_CONF"), share);
    setenv(settings.variable.c_str(), settings.text.c_str(), /*overwrite=*/1);
  });
}

}  // namespace troupe::engine
