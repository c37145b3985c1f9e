// The list scheduler under every named schedule, and the replay of an order that exists.
//
// Pure. A device that is free takes, among the heads of its lanes, the first that is ready. A task
// of several devices begins when all of them are free. What it records is an execution that
// happened, so the orders it returns cannot deadlock when nothing but data and the other devices of
// a task make a device wait.

#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/iteration/task_graph.hpp"

namespace troupe::scheduler {

/// Tasks that a device runs in exactly this order, relative to each other.
struct Lane {
  std::vector<std::int32_t> tasks;  ///< All of the same devices, unless `device` says which.
  std::int32_t priority = 0;        ///< Lower goes first among ready heads of a device.
  std::int32_t device = -1;         ///< The one whose order this is; -1: those of its tasks.
};

/// An execution of a task graph.
struct Timeline {
  DeviceOrders order;                        ///< Per device.
  std::vector<double> begin_ms;              ///< Per task.
  std::vector<double> end_ms;                ///< Per task.
  double step_ms = 0;                        ///< End of the last task.
  std::vector<double> idle_ms;               ///< Per device: step_ms less its tasks.
  std::vector<std::int32_t> peak_in_flight;  ///< Per stage, in microbatches; see `in_flight_peaks`.
};

/// How far a list schedule came.
struct ListResult {
  Timeline timeline;  ///< Complete only if nothing is stuck.
  /// Next task of every lane that could not go on; empty when all is done.
  std::vector<std::int32_t> stuck;
  /// Those of them that only a bound holds back.
  std::vector<std::int32_t> held_back;
};

/// How far stages may run ahead, in microbatches per stage; empty, or 0 for a stage: no bound. They
/// hold back the first forward of a microbatch.
struct Bounds {
  std::vector<std::int32_t> in_flight;  ///< Forward begun, last task not ended.
  std::vector<std::int32_t> ahead;      ///< Forward begun, last input gradient not ended.
};

/// Runs the lanes. Among ready heads of one priority the
/// order is: backward before forward before weight gradient, lower microbatch, lower part, stage
/// nearer to the sink, lower stage.
///
/// REQUIRES: every task of the graph stands in exactly one lane, or in the lane of each of its
/// devices.
/// Cost: O((tasks + dependencies) log tasks), times the lanes of a device.
///
/// It sticks where a forward waits for memory, or a head for a task behind another head.
ListResult list_schedule(const TaskGraph& graph, const std::vector<Lane>& lanes,
                         const Bounds& bounds = {});

/// Executes given orders: one lane per device.
ListResult replay(const TaskGraph& graph, const DeviceOrders& order);

/// Most microbatches in flight per stage when each device follows its order: from the begin of a
/// microbatch's first forward part to the end of its last task on the stage.
std::vector<std::int32_t> in_flight_peaks(const TaskGraph& graph, const DeviceOrders& order);

}  // namespace troupe::scheduler
