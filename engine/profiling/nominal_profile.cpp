#include "engine/profiling/nominal_profile.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "engine/profiling/profile_file.hpp"
#include "engine/profiling/profile_run.hpp"
#include "kernels/gpu_query.hpp"
#include "scheduler/cost/roofline.hpp"

namespace troupe::engine {

namespace {

/// What a bus of sixteen lanes (PCIe 4.0) carries in practice.
constexpr double kHostGigabytesPerS = 25;

/// Of the smallest GPU here, shared by as many devices as meet on one; 0 where there is none, as on
/// a head beside its nodes.
double gpu_memory(int devices) {
  const auto gpus = kernels::query_gpus();
  if (!gpus.ok()) return 0;
  auto least = gpus.value().front().memory;
  for (const auto& gpu : gpus.value()) least = std::min(least, gpu.memory);
  const int count = static_cast<int>(gpus.value().size());
  return static_cast<double>(least.count()) / ((devices + count - 1) / count);
}

}  // namespace

Bytes memory_at_hand(const job::Cluster& cluster) {
  double bytes = cluster.device_memory_gib * 1024 * 1024 * 1024;
  const int devices = std::max(std::max(cluster.local_nodes, 1) * cluster.devices_per_node, 1);
  if (bytes == 0 && cluster.device == "cuda") bytes = gpu_memory(devices);
  if (bytes == 0)
    bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
            static_cast<double>(sysconf(_SC_PAGESIZE)) / devices;
  return Bytes{static_cast<std::int64_t>(bytes)};
}

Bytes memory_of_lone_node(job::Cluster cluster) {
  cluster.local_nodes = 1;
  return memory_at_hand(cluster);
}

scheduler::DeviceSpec nominal_cpu(const job::Cluster& cluster) {
  return {"cpu", 0.05, 0.1, 0.05, 12, memory_at_hand(cluster), 5};
}

std::vector<scheduler::Parallelism> planned_degrees() {
  return {{1, 1}, {2, 1}, {4, 1}, {8, 1}, {1, 2}, {2, 2}, {4, 2}};
}

scheduler::LinkSpeed planned_network() {
  return {0.02, 25 * scheduler::RooflineOptions{}.link_share};
}

scheduler::Profile computed_profile(const JobSetup& setup, const scheduler::DeviceSpec& device,
                                    const std::vector<scheduler::Parallelism>& degrees,
                                    scheduler::LinkSpeed network,
                                    const std::vector<scheduler::LayerProfile>& measured) {
  scheduler::Profile profile;
  profile.device = device.name + " (computed)";
  scheduler::RooflineOptions options;
  options.dtype = setup.job.train.dtype;
  const auto model = scheduler::model_works(setup.model, setup.modules());
  for (std::size_t m = 0; m < model.size(); ++m) {
    const auto& works = model[m];
    const auto& layers = setup.model.modules[m].layers;
    for (std::size_t l = 0; l < layers.size(); ++l)
      profile.layers.push_back({layers[l].name, works[std::min(l, works.size() - 1)].kind});
    for (auto& made : scheduler::computed_profiles(works, device, degrees, options, measured))
      profile.profiles.push_back(std::move(made));
  }
  const double bandwidth = device.memory_gigabytes_per_s * options.bandwidth_share;
  auto& speeds = profile.speeds;
  speeds.origin = scheduler::CostOrigin::computed;
  speeds.device = {0.005, 0};
  speeds.node = {0.01, device.link_gigabytes_per_s * options.link_share};
  speeds.machine = speeds.network = network;
  // Summing reads two gradients and writes one; AdamW reads and writes about seven fp32 words.
  speeds.reduce_gigabytes_per_s = bandwidth / 3;
  speeds.optimizer_elements_per_s = bandwidth * 1e9 / 28;
  speeds.optimizer_group_ms = options.launch_ms;
  // A copy reads and writes; a device with memory of its own is behind a bus.
  speeds.host = {options.launch_ms, std::min(bandwidth / 2, kHostGigabytesPerS)};
  return profile;
}

scheduler::Profile nominal_profile(const JobSetup& setup) {
  std::vector<scheduler::Parallelism> degrees{{}};
  for (const HandStage* stage : setup.job.parallel.layout.all_stages()) {
    const scheduler::Parallelism own{stage->tp, stage->cp};
    if (std::find(degrees.begin(), degrees.end(), own) == degrees.end()) degrees.push_back(own);
  }
  return computed_profile(setup, nominal_cpu(setup.job.cluster), degrees, {0.1, 1});
}

Result<scheduler::Profile> profile_at_hand(const JobSetup& setup) {
  const auto& named = setup.job.scheduler.profile;
  auto stored = load_profile(named.empty() ? default_profile_path(setup) : named);
  if (!stored.ok()) {
    // A file that the user named and that is not there yet will be measured by `train`.
    if (!named.empty() && stored.error().code != Errc::not_found) return std::move(stored).error();
    return nominal_profile(setup);
  }
  const auto why = mismatch(profile_key(setup), stored.value().key);
  if (why.empty()) return std::move(stored).value().profile;
  if (named.empty()) return nominal_profile(setup);
  return Error{Errc::invalid_argument, why, named.string(),
               "name another file, or replace it with `troupe profile --force`"};
}

}  // namespace troupe::engine
