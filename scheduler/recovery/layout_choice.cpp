#include "scheduler/recovery/layout_choice.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "scheduler/recovery/template_layout.hpp"

namespace troupe::scheduler {

namespace {

constexpr double kPriorMs = 3.6e6;

/// What a microbatch takes on each stage, on one GPU.
std::vector<double> stage_times(const ParallelPlan& plan, const TemplateSet& templates) {
  std::map<LayerId, double> times;
  const auto layers = layers_of(plan.model);
  for (std::size_t l = 0; l < layers.size(); ++l) times[layers[l]] = templates.layer_ms[l];
  std::vector<double> of_stages;
  for (const Stage& stage : plan.stages) {
    double sum = 0;
    for (const LayerRun& run : stage.runs)
      for (auto layer = run.layers.begin; layer < run.layers.end; ++layer)
        sum += times[{run.module, layer}];
    of_stages.push_back(sum / static_cast<double>(stage.devices.size()));
  }
  return of_stages;
}

/// Of stages that a device has several of, all count.
std::vector<double> device_times(const ParallelPlan& plan, const std::vector<StageId>& stages,
                                 const std::vector<double>& times) {
  std::map<DeviceId, double> devices;
  for (const StageId id : stages) devices[plan.at(id).devices.front()] += times[id.index()];
  std::vector<double> list;
  for (const auto& [device, time] : devices) list.push_back(time);
  return list;
}

double sum_of(const std::vector<double>& times) {
  double sum = 0;
  for (const double time : times) sum += time;
  return sum;
}

double rate(double ms) { return ms > 0 ? 1 / ms : 0; }

/// What a microbatch takes on devices with these stages, of `count` that fill and drain them once.
double microbatch_ms(const std::vector<double>& devices, double count) {
  const double slowest = *std::max_element(devices.begin(), devices.end());
  return (sum_of(devices) + (count - 1) * slowest) / count;
}

bool share_devices(const ParallelPlan& plan) {
  const auto devices = groups_by_device(plan);
  return std::any_of(devices.begin(), devices.end(),
                     [](const auto& device) { return device.second.size() > 1; });
}

/// Microbatches a millisecond of groups with these rates (> 0), which take turns on a device.
double rate_in_turns(const ParallelPlan& plan, const std::vector<double>& rates) {
  std::map<DeviceId, std::set<ModuleGroupId>> devices;
  for (const Stage& stage : plan.stages)
    devices[stage.devices.front()].insert(plan.at(stage.replica).group);
  double busiest_ms = 0;
  for (const auto& [device, groups] : devices) {
    double ms = 0;
    for (const ModuleGroupId group : groups) ms += 1 / rates[group.index()];
    busiest_ms = std::max(busiest_ms, ms);
  }
  return rate(busiest_ms);
}

}  // namespace

double microbatches_per_ms(const ParallelPlan& plan, const TemplateSet& templates) {
  if (templates.layer_ms.size() != layers_of(plan.model).size()) return 0;
  const auto times = stage_times(plan, templates);
  const auto count = static_cast<double>(templates.microbatches);
  if (!has_groups_of_their_own(plan)) {
    double rates = 0;
    for (std::size_t p = 0; p < plan.pipelines.size(); ++p)
      rates += rate(microbatch_ms(device_times(plan, plan.stages_of(PipelineId{p}), times), count));
    return rates;
  }
  const bool in_turns = share_devices(plan);
  std::vector<double> groups(plan.module_groups.size());
  for (const Replica& replica : plan.replicas) {
    const auto own = device_times(plan, replica.stages, times);
    groups[replica.group.index()] +=
        rate(in_turns ? microbatch_ms(own, count) : *std::max_element(own.begin(), own.end()));
  }
  const double slowest = *std::min_element(groups.begin(), groups.end());
  return in_turns && slowest > 0 ? rate_in_turns(plan, groups) : slowest;
}

double lost_samples(const LayoutOutlook& outlook, double fastest_samples_per_ms,
                    double horizon_ms) {
  const double trains_ms = std::max(0.0, horizon_ms - outlook.copy_ms);
  return fastest_samples_per_ms * horizon_ms - outlook.samples_per_ms * trains_ms;
}

std::size_t choose_layout(std::span<const LayoutOutlook> outlooks, double horizon_ms) {
  double fastest = 0;
  for (const LayoutOutlook& outlook : outlooks) fastest = std::max(fastest, outlook.samples_per_ms);
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < outlooks.size(); ++i) {
    const double lost = lost_samples(outlooks[i], fastest, horizon_ms);
    if (lost >= least) continue;
    best = i;
    least = lost;
  }
  return best;
}

double expected_quiet_ms(std::int64_t changes, double elapsed_ms) {
  return (elapsed_ms + kPriorMs) / static_cast<double>(changes + 1);
}

}  // namespace troupe::scheduler
