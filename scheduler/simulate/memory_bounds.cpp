#include "scheduler/simulate/memory_bounds.hpp"

#include <algorithm>
#include <functional>
#include <iomanip>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "runtime/vocabulary/host_state.hpp"
#include "scheduler/iteration/redistribution.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/simulate/room_demands.hpp"

namespace troupe::scheduler {

namespace {

struct Room {
  double bytes = 0;  ///< What state leaves; not negative.
  double stages = 0;
  double given = 0;  ///< By parameters that leave while a stage computes that keeps its own.
  DeviceId device = {};
};

/// Where all stages of a device exchange rows, as those of one pipeline do, the llm has ended the
/// backwards of a window when parameters come back. Else nobody may count on their room.
void add_given_rooms(const ParallelPlan& plan, const SimulationCosts& costs,
                     std::vector<Room>& rooms) {
  std::vector<std::set<PipelineId>> pipelines(rooms.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const bool leaves = parameters_in_host(plan, StageId{s});
    const double given = leaves ? costs.parameter_bytes(StageId{s}).all : 0;
    for (const DeviceId device : plan.stages[s].devices) {
      pipelines[device.index()].insert(plan.pipeline_of(StageId{s}));
      rooms[device.index()].given += given;
    }
  }
  for (std::size_t d = 0; d < rooms.size(); ++d)
    if (pipelines[d].size() > 1) rooms[d].given = 0;
}

/// Per device.
std::vector<Room> rooms_of(const ParallelPlan& plan, const SimulationCosts& costs,
                           Bytes device_memory) {
  std::vector<Room> rooms(plan.devices.size(), {static_cast<double>(device_memory.count()), 0});
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const double state = costs.state_bytes(StageId{s});
    for (const DeviceId device : plan.stages[s].devices) {
      rooms[device.index()].bytes -= state;
      rooms[device.index()].stages += 1;
    }
  }
  if (costs.parameter_bytes) add_given_rooms(plan, costs, rooms);
  for (std::size_t d = 0; d < rooms.size(); ++d) {
    if (costs.standby_bytes) rooms[d].bytes -= costs.standby_bytes(DeviceId{d});
    rooms[d].bytes = std::max(0.0, rooms[d].bytes);
  }
  return rooms;
}

/// On the device of the stage where each stage has least.
Room room_beside(const ParallelPlan& plan, const std::vector<Room>& rooms, StageId stage) {
  std::optional<Room> least;
  for (const DeviceId device : plan.at(stage).devices) {
    Room room = rooms[device.index()];
    room.device = device;
    if (!parameters_in_host(plan, stage)) room.bytes += room.given;
    if (!least || room.bytes / room.stages < least->bytes / least->stages) least = room;
  }
  return *least;
}

LargestMicrobatch largest_of(const std::vector<Microbatch>& microbatches,
                             const SimulationCosts& costs, StageId stage) {
  LargestMicrobatch largest;
  for (std::size_t m = 0; m < microbatches.size(); ++m) {
    double bytes = 0, offloaded = 0;
    for (const auto& part : microbatches[m].parts) {
      bytes += costs.activation_bytes(stage, part.samples);
      if (costs.offloaded_bytes) offloaded += costs.offloaded_bytes(stage, part.samples);
    }
    if (bytes > largest.bytes) largest = {bytes, offloaded, m};
  }
  return largest;
}

/// Rows that come to a stage: those of a module, from its last layer or from one before it.
struct Arrival {
  ModuleId module;
  bool boundary = false;
};

/// Per stage.
std::vector<std::vector<Arrival>> arrivals_of(const ParallelPlan& plan) {
  std::vector<std::vector<Arrival>> arrivals(plan.stages.size());
  for (const Replica& replica : plan.replicas) {
    const std::size_t first = replica.stages.front().index();
    const auto own = std::span(plan.stages).subspan(first, replica.stages.size());
    for (const auto& edge : stage_edges(plan.model, own))
      arrivals[first + edge.to].push_back({edge.module, edge.boundary});
  }
  for (std::size_t m = 0; m < plan.model.modules.size(); ++m)
    for (const ModuleId next : plan.model.modules[m].next) {
      if (plan.group_of(next) == plan.group_of(ModuleId{m})) continue;
      const LayerId entry{next, entry_layer(plan.model, ModuleId{m}, next)};
      for (std::size_t r = 0; r < plan.replicas.size(); ++r)
        if (plan.replicas[r].group == plan.group_of(next))
          arrivals[stage_with(plan, ReplicaId{r}, entry).index()].push_back({ModuleId{m}, true});
    }
  return arrivals;
}

std::string mebibytes(double bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << bytes / (1 << 20) << " MiB";
  return text.str();
}

std::string name_of(const DeviceSlot& slot) {
  return "device " + std::to_string(slot.local_index) + " of node " +
         std::to_string(slot.node.value);
}

Error too_large(const LargestMicrobatch& largest, double room, StageId stage, PipelineId pipeline) {
  return {Errc::infeasible,
          "microbatch " + std::to_string(largest.microbatch) + " of pipeline " +
              std::to_string(pipeline.value) + " keeps " + mebibytes(largest.bytes) +
              " of activations on stage " + std::to_string(stage.value) + ", where state leaves " +
              mebibytes(room) + " of the device",
          "cluster.device_memory_gib",
          "raise it or train.microbatches, or cut the stage's modules into more stages"};
}

/// Shares of a room: even ones, but that who cannot do with that has what it needs at least, and
/// the others share the rest.
std::vector<double> even_shares(double room, const std::vector<double>& least) {
  std::vector<std::size_t> order(least.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return least[i]; });
  std::vector<double> shares(least.size());
  auto others = static_cast<double>(least.size());
  for (const std::size_t i : order) {
    shares[i] = std::max(least[i], room / others);
    room -= shares[i];
    --others;
  }
  return shares;
}

/// How many microbatches have room in a share that has room for one. Very many where nothing is
/// kept.
std::int32_t kept_in(double share, const LargestMicrobatch& largest) {
  constexpr double kMany = 1 << 20;
  const double each = largest.bytes - largest.offloaded;
  const double kept = each > 0 ? (share - largest.offloaded) / each : kMany;
  return std::max(1, static_cast<std::int32_t>(std::min(kept, kMany)));
}

Error too_full(const ParallelPlan& plan, DeviceId device, double wanted, double room) {
  return {Errc::infeasible,
          "the stages of " + name_of(plan.devices[device.index()]) +
              " keep activations of a microbatch each at once, up to " + mebibytes(wanted) +
              ", where state leaves " + mebibytes(room),
          "cluster.device_memory_gib",
          "raise it or train.microbatches, or give encoders and llm devices of their own"};
}

/// Outside phases no parameters leave, and nobody has the room of others.
Result<std::vector<std::int32_t>> even_bounds(const ParallelPlan& plan,
                                              const std::vector<Room>& rooms,
                                              const std::vector<LargestMicrobatch>& largest) {
  std::vector<std::vector<std::size_t>> stages(plan.devices.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const DeviceId device : plan.stages[s].devices) stages[device.index()].push_back(s);
  std::vector<std::int32_t> bounds(plan.stages.size(), std::numeric_limits<std::int32_t>::max());
  for (std::size_t d = 0; d < stages.size(); ++d) {
    std::vector<double> least;
    double wanted = 0;
    for (const std::size_t s : stages[d]) {
      least.push_back(largest[s].bytes);
      wanted += largest[s].bytes;
    }
    if (wanted > rooms[d].bytes) return too_full(plan, DeviceId{d}, wanted, rooms[d].bytes);
    const auto shares = even_shares(rooms[d].bytes, least);
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const std::size_t s = stages[d][i];
      bounds[s] = std::min(bounds[s], kept_in(shares[i], largest[s]));
    }
  }
  return bounds;
}

/// Of a stage on the device that leaves it least; of an encoder also on those of the llm of its
/// set, where rows of its windows wait. Windows are as wide as the least bound of those that share
/// them, so that who has room for all of its own has the bound of the longest list.
std::vector<std::int32_t> divided_bounds(const ParallelPlan& plan, const std::vector<Room>& rooms,
                                         std::vector<RoomDemand> demands,
                                         const std::vector<WindowSet>& sets) {
  double longest = 1;
  for (const RoomDemand& demand : demands) longest = std::max(longest, demand.encoder_microbatches);
  std::vector<RoomDivision> divisions;
  for (std::size_t d = 0; d < rooms.size(); ++d) {
    demands[d].leaving_bytes = rooms[d].given;
    RoomDivision& own = divisions.emplace_back(divide_room(rooms[d].bytes, demands[d]));
    if (own.windows <= 1) own.width = std::max(own.width, static_cast<std::int32_t>(longest));
  }
  const auto least = [&](const Stage& stage, std::int32_t RoomDivision::*share) {
    std::int32_t kept = std::numeric_limits<std::int32_t>::max();
    for (const DeviceId device : stage.devices)
      kept = std::min(kept, divisions[device.index()].*share);
    return kept;
  };
  // By number of the set.
  std::vector<std::int32_t> beside_rows(sets.size(), std::numeric_limits<std::int32_t>::max());
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    auto& width = beside_rows[sets[stage.replica.index()].number];
    if (plan.is_llm(StageId{s})) width = std::min(width, least(stage, &RoomDivision::width));
  }
  std::vector<std::int32_t> bounds;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    bounds.push_back(plan.is_llm(StageId{s})
                         ? least(stage, &RoomDivision::in_flight)
                         : std::min(least(stage, &RoomDivision::width),
                                    beside_rows[sets[stage.replica.index()].number]));
  }
  return bounds;
}

}  // namespace

SimulationCosts with_arriving_rows(SimulationCosts costs, const ParallelPlan& plan,
                                   std::shared_ptr<const RowFlow> flow) {
  costs.activation_bytes = [flow = std::move(flow), &plan, arrivals = arrivals_of(plan),
                            activations = std::move(costs.activation_bytes),
                            element = costs.bytes_per_element](
                               StageId stage, const std::vector<std::int32_t>& part) {
    double elements = 0;
    for (const Arrival& arrival : arrivals[stage.index()]) {
      const ModuleSpec& module = plan.model.at(arrival.module);
      TokenCount rows = 0;
      for (const std::int32_t unit : part)
        rows += arrival.boundary ? flow->output(arrival.module, unit)
                                 : flow->hidden(arrival.module, unit);
      elements += static_cast<double>(rows) *
                  static_cast<double>(arrival.boundary ? module.output_width : module.hidden_width);
    }
    return activations(stage, part) + elements * element / plan.at(stage).grid.cp;
  };
  return costs;
}

double wanted_elements(const ModelGraph& model, const RowFlow& flow, ModuleId module,
                       std::int32_t layers, std::span<const std::int32_t> part) {
  const ModuleSpec& spec = model.at(module);
  const bool ends = layers == static_cast<std::int32_t>(spec.layers.size());
  TokenCount rows = 0;
  for (const std::int32_t unit : part)
    if (flow.wants_gradient(module, layers, unit))
      rows += ends ? flow.output(module, unit) : flow.hidden(module, unit);
  return static_cast<double>(rows) *
         static_cast<double>(ends ? spec.output_width : spec.hidden_width);
}

SimulationCosts with_offloading(SimulationCosts costs, const ParallelPlan& plan,
                                std::shared_ptr<const RowFlow> flow) {
  costs.offloaded_bytes = [flow = std::move(flow), &plan, activations = costs.activation_bytes,
                           element = costs.bytes_per_element](
                              StageId stage, const std::vector<std::int32_t>& part) {
    if (plan.is_llm(stage)) return 0.0;
    double outputs = 0;
    for (const LayerRun& run : plan.at(stage).runs)
      outputs += wanted_elements(plan.model, *flow, run.module, run.layers.end, part);
    return std::max(0.0, activations(stage, part) - outputs * element / plan.at(stage).grid.cp);
  };
  return costs;
}

std::vector<double> microbatch_rooms(const ParallelPlan& plan, const SimulationCosts& costs,
                                     Bytes device_memory) {
  const auto rooms = rooms_of(plan, costs, device_memory);
  std::vector<double> bytes;
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    bytes.push_back(room_beside(plan, rooms, StageId{s}).bytes);
  return bytes;
}

std::vector<double> rooms_beside_llm(const ParallelPlan& plan, const SimulationCosts& costs,
                                     Bytes device_memory,
                                     const std::vector<MicrobatchList>& microbatches) {
  auto left = rooms_of(plan, costs, device_memory);
  auto rooms = microbatch_rooms(plan, costs, device_memory);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (!plan.is_llm(StageId{s})) continue;
    const Stage& stage = plan.stages[s];
    const auto largest = largest_of(microbatches[stage.replica.index()], costs, StageId{s});
    for (const DeviceId device : stage.devices) left[device.index()].bytes -= largest.bytes;
  }
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    if (!plan.is_llm(StageId{s}))
      for (const DeviceId device : plan.stages[s].devices)
        rooms[s] = std::min(rooms[s], std::max(0.0, left[device.index()].bytes));
  return rooms;
}

Result<std::vector<std::int32_t>> memory_bounds(const ParallelPlan& plan,
                                                const SimulationCosts& costs, Bytes device_memory,
                                                const std::vector<MicrobatchList>& microbatches,
                                                const Schedule& schedule, const RowFlow& flow,
                                                const SampleUnits& units) {
  const auto rooms = rooms_of(plan, costs, device_memory);
  std::vector<LargestMicrobatch> largest;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StageId stage{s};
    largest.push_back(largest_of(microbatches[plan.at(stage).replica.index()], costs, stage));
    const double room = room_beside(plan, rooms, stage).bytes;
    if (largest.back().bytes > room)
      return too_large(largest.back(), room, stage, plan.pipeline_of(stage));
  }
  if (!has_phases(schedule)) return even_bounds(plan, rooms, largest);
  const auto sets = window_sets(plan, flow, units, microbatches);
  return divided_bounds(
      plan, rooms, room_demands(plan, flow, costs.bytes_per_element, largest, microbatches, sets),
      sets);
}

Error short_of_memory(const ParallelPlan& plan, const SimulationCosts& costs, Bytes device_memory,
                      const std::vector<MicrobatchList>& microbatches, const Schedule& schedule,
                      StageId stage, std::int32_t needed) {
  const Room room = room_beside(plan, rooms_of(plan, costs, device_memory), stage);
  const auto largest = largest_of(microbatches[plan.at(stage).replica.index()], costs, stage);
  const double wanted = largest.offloaded + needed * (largest.bytes - largest.offloaded);
  std::string message = "stage " + std::to_string(stage.value) + " keeps activations of " +
                        std::to_string(needed) + " microbatches at once, up to " +
                        mebibytes(wanted) + "; " + name_of(plan.devices[room.device.index()]) +
                        " has " + mebibytes(room.bytes) + " beside state";
  if (room.stages > 1)
    message += " for all its stages";
  else if (wanted <= room.bytes)
    message += ", and less where their rows wait for the llm";
  std::string fix = "raise it or train.microbatches, for fewer samples in each";
  if (has_phases(schedule) && !costs.offloaded_bytes)
    fix += ", or set scheduler.offload_encoders = \"activations\"";
  return {Errc::infeasible, std::move(message), "cluster.device_memory_gib", std::move(fix)};
}

}  // namespace troupe::scheduler
