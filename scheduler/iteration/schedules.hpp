// The named pipeline schedules: who may run ahead how far, and what goes first; and schedules of a
// user's own, as values.
//
// Pure. Each built-in one is an instance of the list scheduler: lanes and bounds per stage. To add
// one, add its row to the table in schedules.cpp.

#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "scheduler/iteration/list_schedule.hpp"
#include "scheduler/iteration/task_graph.hpp"

namespace troupe::scheduler {

/// Names that `make_schedule` knows, in the order of the interface page.
const std::vector<std::string>& schedule_names();

/// A schedule of a user's own.
struct OwnSchedule {
  std::string name;
  /// Whether weight gradients are tasks of their own; see `splits_weight_gradient`.
  bool splits_weight_gradient = false;
  /// Whether backwards of deferred parts run apart; see `runs_parts_apart`.
  bool runs_parts_apart = false;
  /// For each device its tasks, in the order in which it is to run them; a task of several devices
  /// stands in the list of each. `max_in_flight`: as `make_schedule`'s. A function of its arguments
  /// alone, and thread-safe: the same step may be planned again, and must come out the same.
  std::function<Result<DeviceOrders>(const TaskGraph& graph,
                                     const std::vector<std::int32_t>& max_in_flight)>
      order;
};

/// For each device its tasks in an order that never waits for ever: that of `wished`, but a task
/// stands behind all that it needs. For schedules of a user's own: samples that a policy defers, or
/// replicas that encode for several of the llm's, make a task need what an order of microbatches
/// has later.
///
/// `wished`: each task of the graph once, over all devices. What it leaves out is left out, and so
/// is what needs that; `make_schedule` then names it.
/// Cost: O((tasks + dependencies) log tasks).
DeviceOrders order_devices(const TaskGraph& graph, std::span<const std::int32_t> wished);

/// Which schedule: a built-in one by its name, or one of a user's own. A value.
struct Schedule {
  std::string name = "1f1b";
  std::shared_ptr<const OwnSchedule> own;  ///< Null: the built-in one of that name.

  Schedule() = default;  ///< `1f1b`.
  // NOLINTNEXTLINE(google-explicit-constructor): names stand for built-in schedules everywhere.
  Schedule(std::convertible_to<std::string> auto&& built_in)
      : name(std::forward<decltype(built_in)>(built_in)) {}  ///< The built-in one.
  explicit Schedule(std::shared_ptr<const OwnSchedule> of_user)
      : name(of_user->name), own(std::move(of_user)) {}  ///< REQUIRES: not null.
};

/// True if the schedule runs input and weight gradients as tasks of their own, so that the graph
/// must have `backward_input` and `backward_weight` instead of `backward`.
bool splits_weight_gradient(const Schedule& schedule);

/// True if the backwards of a microbatch's parts run apart, each as soon as its gradient is there.
/// In the other schedules all wait for the last, so parts would cost and bring nothing.
bool runs_parts_apart(const Schedule& schedule);

/// True if the schedule has phases: encoders forward, llm, encoders backward. What encoders keep is
/// of no use in between. Nobody knows that of one of a user's own.
bool has_phases(const Schedule& schedule);

/// True if the schedule's order on a device of one stage does not depend on times, as long as
/// nothing is deferred. Nobody knows that of one of a user's own.
bool has_fixed_order(const Schedule& schedule);

/// What to say of a stage that would need `needed` microbatches in flight, or more, where its bound
/// is less: for who knows what the bound comes from.
using RefuseBound = std::function<Error(std::int32_t stage, std::int32_t needed)>;

/// Orders the tasks of a graph by a schedule. `depth` below is the number of stages on a
/// stage's longest path to the sink, `most` its entry of `max_in_flight`.
///
/// - `1f1b`: min(depth, most) forwards, then one backward and one forward in turn (heterogeneous
///   parallelism, section 3.3). The backwards of a microbatch's parts follow each other. Where
///   samples are deferred to a later llm microbatch, a stage that would wait for ever gets one more
///   forward until it does not.
/// - `split-1f1b`: the same for the first part of each microbatch; the backward of a deferred part
///   runs as soon as its gradient is there (Entrain, section 4.5.3).
/// - `eager-1f1b`: as `split-1f1b`, but a stage may run forwards while fewer than 2 x depth are in
///   flight, or fewer than `most` where that is less or takes less time.
/// - `zero-bubble`: weight gradients are tasks of their own that fill gaps. In flight, until the
///   weight gradient, are at most as many microbatches as the pipeline is deep (ZB-H1: the peak of
///   1F1B).
/// - `eager-zero-bubble`: the same with twice the memory (ZB-H2).
///   These three try several forms and keep the fastest: whatever is ready, backwards first; strict
///   turns after depth forwards; strict turns after as many forwards as the bound allows.
/// - `gpipe`: all forwards, then all backwards, both in microbatch order.
/// - `dip`: on each device all encoder forwards, then the llm in 1F1B, then all encoder backwards.
/// - `three-phase`: the same, but the llm begins when every encoder forward of the pipeline is
///   done, and encoder backwards begin when its llm has drained. Where an encoder may not have all
///   microbatches in flight, both run their phases over one window of them after another.
///
/// `max_in_flight`: microbatches per stage from the begin of the forward to the end of the last
/// task; empty, or 0 for a stage: no bound. `gpipe` needs room for all that it runs ahead. Of a
/// stage that it holds back, those behind it take strict turns after as large a part of their
/// forwards as it has: so one microbatch ends per round trip / bound, or nearly. Behind several
/// encoders they take as many as come before the first of them must have gone back: of encoders
/// that take turns, those of all; where each has something of every microbatch, the fewest, also
/// where that is as many as the encoder is deep and fewer than the llm is.
///
/// The result depends on the times of the tasks where a device has several stages, and in the
/// schedules that search or defer (`eager-*`, `*zero-bubble`, `split-1f1b`).
///
/// Cost: O(tasks log tasks); once more for each time the bound of a stage is raised.
///
/// Errors:
/// - invalid_argument: no such schedule, the nearest name is given; or a circle in the graph; or a
///   schedule of a user's own that throws, leaves tasks out, names them twice or on other devices,
///   or waits for ever: names the schedule and the task.
/// - infeasible: `max_in_flight` is too small; the message names stage and bound, or is what
///   `refuse` says.
Result<Timeline> make_schedule(const TaskGraph& graph, const Schedule& schedule,
                               const std::vector<std::int32_t>& max_in_flight = {},
                               const RefuseBound& refuse = {});

}  // namespace troupe::scheduler
