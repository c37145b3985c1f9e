#include "scheduler/simulate/predicted_costs.hpp"
#include "runtime/vocabulary/host_state.hpp"
#include "scheduler/cost/part_sums.hpp"
#include "scheduler/cost/state_bytes.hpp"
#include "scheduler/iteration/message_routes.hpp"
#include "scheduler/iteration/rank_links.hpp"
#include "scheduler/state/standby_holders.hpp"
#include "scheduler/state/state_moves.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

namespace troupe::scheduler {

namespace {

/// What a stage keeps and updates, whatever the samples.
struct StageState {
  double bytes = 0;     ///< On the device all the time.
  double elements = 0;  ///< That train, and are updated in one action.
  double groups = 0;
};

/// Whether a layer of a stage uses a tied parameter before all others of the stage do: all uses
/// share what the stage keeps.
bool is_first_use(const Stage& stage, const TiedParameter& tied, LayerId layer) {
  const auto use = std::find_if(tied.layers.begin(), tied.layers.end(), [&](const LayerId& user) {
    return std::any_of(stage.runs.begin(), stage.runs.end(), [&](const LayerRun& run) {
      return run.module == user.module && run.layers.begin <= user.layer &&
             user.layer < run.layers.end;
    });
  });
  return use != tied.layers.end() && *use == layer;
}

std::vector<StageState> stage_states(const ParallelPlan& plan, const PredictionOptions& options) {
  std::vector<StageState> states(plan.stages.size());
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const ParameterGroup& group = plan.groups[g];
    const bool from_host = moments_in_host(plan, GroupId{g});
    for (std::size_t u = 0; u < group.uses.size(); ++u) {
      const StageId stage = group.uses[u].stage;
      StageState& state = states[stage.index()];
      const auto elements = static_cast<double>(group.elements_at(plan.at(stage).grid.tp));
      // Of a tied one that is here already, each further use has a gradient of its own.
      if (u > 0 && group.uses[u - 1].stage == stage) {
        state.bytes += elements * gradient_bytes_per_element(options.dtype);
        continue;
      }
      state.bytes += elements * state_bytes_per_trained_element(options.dtype);
      if (from_host) {
        state.bytes -= elements * moment_bytes_per_element(options.dtype);
        continue;
      }
      state.elements += elements;
      state.groups += 1;
    }
  }
  const double element = bytes_per_element(options.dtype);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::int32_t tp = plan.stages[s].grid.tp;
    const auto keep = [&](std::int64_t elements) {
      states[s].bytes += element * static_cast<double>(elements);
    };
    for (const auto& run : plan.stages[s].runs) {
      const ModuleSpec& module = plan.model.at(run.module);
      for (auto layer = run.layers.begin; layer < run.layers.end; ++layer) {
        const auto& spec = module.layers[static_cast<std::size_t>(layer)];
        keep(spec.constant_elements);
        states[s].bytes += static_cast<double>(spec.held_bytes);
        if (!module.freeze) continue;
        keep(split_over(spec.parameter_elements, spec.splits, tp));
        for (const auto& tied : plan.model.tied)
          if (is_first_use(plan.stages[s], tied, {run.module, layer}))
            keep(split_over(tied.parameter_elements, tied.splits, tp));
      }
    }
  }
  return states;
}

/// Of a stage: what of its parameters trains, and what does not, in elements on each rank. One that
/// stages of several devices or modules use stands with its first use of the stage.
struct StageElements {
  double trained = 0;
  double frozen = 0;
};

StageElements parameter_elements(const ParallelPlan& plan, StageId id) {
  const Stage& stage = plan.at(id);
  StageElements elements;
  for (const LayerRun& run : stage.runs) {
    const ModuleSpec& module = plan.model.at(run.module);
    double& own = module.freeze ? elements.frozen : elements.trained;
    for (auto layer = run.layers.begin; layer < run.layers.end; ++layer) {
      const auto& spec = module.layers[static_cast<std::size_t>(layer)];
      elements.frozen += static_cast<double>(spec.constant_elements);
      own += static_cast<double>(split_over(spec.parameter_elements, spec.splits, stage.grid.tp));
      for (const auto& tied : plan.model.tied)
        if (is_first_use(stage, tied, {run.module, layer}))
          own +=
              static_cast<double>(split_over(tied.parameter_elements, tied.splits, stage.grid.tp));
    }
  }
  return elements;
}

/// What each device keeps and updates without a stage: whole parameters, also where stages split
/// them, as one device may have to hand them to stages of any degrees.
std::vector<StageState> standby_states(const ParallelPlan& plan, const PredictionOptions& options) {
  std::vector<StageState> states(plan.devices.size());
  if (plan.standbys.empty()) return states;
  const auto units = state_units(plan.model);
  for (const Standby& standby : plan.standbys) {
    const StateUnit& unit = unit_of(units, standby);
    StageState& state = states[standby.device.index()];
    state.bytes += unit.bytes(options.dtype) - unit.host_bytes(options.dtype);
    if (unit.moments_in_host) continue;
    state.elements += static_cast<double>(unit.trained);
    state.groups += unit.trained > 0 ? 1 : 0;
  }
  return states;
}

/// Elements of groups whose moments are in host memory, as a rank of a stage has them, or without
/// a stage a standby holder.
std::map<std::pair<GroupId, StageId>, double> elements_in_host(const ParallelPlan& plan) {
  std::map<std::pair<GroupId, StageId>, double> elements;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const GroupId id{g};
    const ParameterGroup& group = plan.groups[g];
    if (!moments_in_host(plan, id)) continue;
    for (const ParameterUse& use : group.uses)
      elements[{id, use.stage}] =
          static_cast<double>(group.elements_at(plan.at(use.stage).grid.tp));
    if (group.standbys > 0) elements[{id, StageId{}}] = static_cast<double>(group.elements);
  }
  return elements;
}

}  // namespace

std::vector<double> stage_state_bytes(const ParallelPlan& plan, const PredictionOptions& options) {
  std::vector<double> bytes;
  for (const auto& state : stage_states(plan, options)) bytes.push_back(state.bytes);
  return bytes;
}

std::vector<double> standby_state_bytes(const ParallelPlan& plan,
                                        const PredictionOptions& options) {
  std::vector<double> bytes;
  for (const auto& state : standby_states(plan, options)) bytes.push_back(state.bytes);
  return bytes;
}

std::vector<StageParameters> stage_parameters_in_host(const ParallelPlan& plan,
                                                      const PredictionOptions& options) {
  std::vector<StageParameters> parameters(plan.stages.size());
  const double each = bytes_per_element(options.dtype);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (!parameters_in_host(plan, StageId{s})) continue;
    const StageElements elements = parameter_elements(plan, StageId{s});
    parameters[s] = {each * (elements.trained + elements.frozen), each * elements.trained};
  }
  return parameters;
}

std::vector<HostState> host_states(const ParallelPlan& plan, const PredictionOptions& options) {
  std::vector<HostState> states(plan.devices.size());
  const auto parameters = stage_parameters_in_host(plan, options);
  std::set<DeviceId> shared;  // With a stage that wants the room.
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    if (!parameters_in_host(plan, StageId{s}))
      shared.insert(plan.stages[s].devices.begin(), plan.stages[s].devices.end());
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const DeviceId device : plan.stages[s].devices)
      if (shared.contains(device)) states[device.index()].parameters += parameters[s].all;
  std::set<std::pair<GroupId, DeviceId>> counted;
  const auto keep = [&](GroupId group, DeviceId device, double elements) {
    if (!counted.insert({group, device}).second) return;
    HostState& state = states[device.index()];
    const double bytes = elements * moment_bytes_per_element(options.dtype);
    state.bytes += bytes;
    state.largest_bytes = std::max(state.largest_bytes, bytes);
  };
  for (const auto& [place, elements] : elements_in_host(plan)) {
    const auto& [group, stage] = place;
    const ParameterGroup& held = plan.groups[group.index()];
    if (stage.valid())
      for (const DeviceId device : plan.at(stage).devices) keep(group, device, elements);
    else
      for (auto h = static_cast<std::size_t>(held.users()); h < held.holders.size(); ++h)
        keep(group, held.holders[h], elements);
  }
  return states;
}

namespace {

double task_ms(const PassCosts& passes, TaskKind kind) {
  switch (kind) {
    case TaskKind::forward: return passes.forward;
    case TaskKind::backward: return passes.input_grad + passes.weight_grad;
    case TaskKind::backward_input: return passes.input_grad;
    case TaskKind::backward_weight: return passes.weight_grad;
  }
  return 0;
}

/// `passes_of`: what a stage takes for a part, as `PassCosts`.
template <class Passes>
void set_tasks(SimulationCosts& costs, Passes passes_of) {
  const auto passes = std::make_shared<const Passes>(std::move(passes_of));
  costs.task_ms = [passes](StageId stage, const std::vector<std::int32_t>& part, TaskKind kind) {
    return task_ms((*passes)(stage, part), kind);
  };
  costs.activation_bytes = [passes](StageId stage, const std::vector<std::int32_t>& part) {
    return (*passes)(stage, part).activations;
  };
}

/// `passes_of`: as of `set_tasks`.
template <class Passes>
SimulationCosts costs_of(const ParallelPlan& plan, const PredictionOptions& options,
                         Passes passes_of) {
  SimulationCosts costs = link_and_sum_costs(options);
  set_tasks(costs, std::move(passes_of));
  const auto states = std::make_shared<const std::vector<StageState>>(stage_states(plan, options));
  costs.state_bytes = [states](StageId stage) { return (*states)[stage.index()].bytes; };
  const auto update_ms = [speeds = options.speeds](const StageState& state) {
    const double rate = speeds.optimizer_elements_per_s / 1000;
    return state.groups * speeds.optimizer_group_ms + (rate > 0 ? state.elements / rate : 0);
  };
  costs.optimizer_ms = [states, update_ms](StageId stage) {
    return update_ms((*states)[stage.index()]);
  };
  const auto standbys =
      std::make_shared<const std::vector<StageState>>(standby_states(plan, options));
  costs.standby_bytes = [standbys](DeviceId device) { return (*standbys)[device.index()].bytes; };
  costs.standby_optimizer_ms = [standbys, update_ms](DeviceId device) {
    return update_ms((*standbys)[device.index()]);
  };
  const auto in_host =
      std::make_shared<const std::map<std::pair<GroupId, StageId>, double>>(elements_in_host(plan));
  const auto elements_of = [in_host](GroupId group, StageId stage) {
    const auto found = in_host->find({group, stage});
    return found == in_host->end() ? 0 : found->second;
  };
  costs.moment_bytes = [elements_of, each = moment_bytes_per_element(options.dtype)](
                           GroupId group, StageId stage) {
    return elements_of(group, stage) * each;
  };
  const auto parameters =
      std::make_shared<const std::vector<StageParameters>>(stage_parameters_in_host(plan, options));
  costs.parameter_bytes = [parameters](StageId stage) { return (*parameters)[stage.index()]; };
  costs.group_optimizer_ms = [elements_of, update_ms](GroupId group, StageId stage) {
    return update_ms({0, elements_of(group, stage), 1});
  };
  costs.host = options.speeds.host;
  return costs;
}

}  // namespace

Result<std::vector<SampleWork>> sample_workloads(const CostModel& model,
                                                 std::span<const SampleShape> samples,
                                                 std::span<const Parallelism> parallelisms) {
  SampleSums sums(model, samples);
  return sample_workloads(sums, parallelisms);
}

Result<std::vector<SampleWork>> sample_workloads(SampleSums& sums,
                                                 std::span<const Parallelism> parallelisms) {
  const auto costs = sums.at(parallelisms);
  if (!costs.ok()) return costs.error();
  const ModelGraph& graph = sums.model().graph();
  std::vector<AlikeLayers> encoder, llm;
  for (std::size_t m = 0; m < graph.modules.size(); ++m) {
    const auto layers = static_cast<std::int32_t>(graph.modules[m].layers.size());
    costs.value().add({ModuleId{m}, {0, layers}},
                      m < parallelisms.size() ? parallelisms[m] : Parallelism{},
                      graph.modules[m].kind == ModuleKind::llm ? llm : encoder);
  }
  std::vector<std::optional<SampleWork>> known(costs.value().shape_count());
  std::vector<SampleWork> works;
  works.reserve(sums.size());
  for (std::size_t s = 0; s < sums.size(); ++s) {
    auto& work = known[costs.value().shape_of(s)];
    if (!work) {
      const PassCosts left = costs.value().sample(encoder, s);
      const PassCosts right = costs.value().sample(llm, s);
      work = {left.forward, left.forward + left.input_grad + left.weight_grad, right.forward,
              right.forward + right.input_grad + right.weight_grad};
    }
    works.push_back(*work);
  }
  return works;
}

SimulationCosts link_and_sum_costs(const PredictionOptions& options) {
  const DeviceSpeeds& speeds = options.speeds;
  SimulationCosts costs;
  costs.bytes_per_element = bytes_per_element(options.dtype);
  costs.summed_bytes_per_element = gradient_bytes_per_element(options.dtype);
  costs.reduce_gigabytes_per_s = speeds.reduce_gigabytes_per_s;
  costs.device = speeds.device;
  costs.node = speeds.node;
  costs.network = speeds.network;
  return costs;
}

Result<SimulationCosts> predicted_costs(const ParallelPlan& plan, const CostModel& model,
                                        std::span<const SampleShape> samples,
                                        const PredictionOptions& options) {
  auto of_samples = SampleSums(model, samples).of(plan);
  if (!of_samples.ok()) return std::move(of_samples).error();
  return predicted_costs(plan, of_samples.value(), options);
}

SimulationCosts predicted_costs(const ParallelPlan& plan, const SampleCosts& samples,
                                const PredictionOptions& options) {
  return costs_of(plan, options,
                  [samples, layers = layers_of_stages(plan, samples)](
                      StageId stage, const std::vector<std::int32_t>& part) {
                    return samples.part(layers[stage.index()], part);
                  });
}

SimulationCosts predicted_costs(const ParallelPlan& plan, const SampleCosts& samples,
                                const std::vector<MicrobatchList>& microbatches,
                                const PredictionOptions& options) {
  return costs_of(plan, options, PartSums(plan, samples, microbatches));
}

SimulationCosts with_summed_parts(SimulationCosts costs, const ParallelPlan& plan,
                                  const SampleCosts& samples,
                                  const std::vector<MicrobatchList>& microbatches) {
  set_tasks(costs, PartSums(plan, samples, microbatches));
  return costs;
}

LinkCost link_costs(const SimulationCosts& costs) {
  SimulationCosts links;  // The speeds alone: what stages cost may be large.
  links.device = costs.device;
  links.node = costs.node;
  links.network = costs.network;
  return [links, element = costs.bytes_per_element](LinkClass kind, double elements) {
    const LinkSpeed& link = links.link(kind);
    const double bytes = elements * element;
    return link.latency_ms + (link.gigabytes_per_s > 0 ? bytes / (link.gigabytes_per_s * 1e6) : 0);
  };
}

MessageCost message_costs(const ParallelPlan& plan, const SimulationCosts& costs) {
  return [&plan, link_ms = link_costs(costs)](const Message& message) {
    const RouteLegs legs = legs_of(plan, message, false);
    const auto elements = static_cast<double>(message.rows * message.width);
    return legs.ms(link_ms, elements, 0, legs.count);
  };
}

}  // namespace troupe::scheduler
