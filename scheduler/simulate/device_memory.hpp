// What one device holds over the time of a simulated iteration: parts between their forward and
// their last backward, and the rows and gradients that came for them.
//
// Pure value, single owner. Devices of a simulation run ahead of each other, so changes are noted
// with their time and summed in the end.

#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"

namespace troupe::scheduler {

/// The most bytes at any time. What is freed at a moment makes room for what is taken then.
struct MemoryPeaks {
  double bytes = 0;        ///< Of all that the device holds.
  double activations = 0;  ///< Of parts, their messages and what passes alone.
  double host = 0;         ///< Of what is in host memory.
};

class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// `list`: the device's actions, of which the compute actions of each part are counted.
  explicit DeviceMemory(const std::vector<Action>& list);

  /// Bytes held all the time: parameters, gradients, optimizer.
  void add_state(double bytes) { state_bytes_ += bytes; }

  /// A compute action of a part ran. The part's first one takes `bytes`; its last one frees them
  /// and what came for the part.
  void compute(const MessageEnd& part, double bytes, double begin_ms, double end_ms);

  /// A message of `bytes` is there for a part, and held until the part ends.
  void arrive(const MessageEnd& part, double bytes, double ms);

  /// Bytes of a part went to host memory (`offload`), and the device has none of them at the end;
  /// or they came back (`fetch`), and it has room for them from the begin. The same of a group's
  /// moments (`fetch_state`, `offload_state`), whose place in host memory stays theirs meanwhile.
  /// REQUIRES: one of the four.
  void move(ActionKind kind, double bytes, double begin_ms, double end_ms);

  /// Parameters of a stage have left (`leave`: at the end), or come back (from the begin on).
  /// `kept`: the place in host memory that the first move takes for good.
  void move_parameters(bool leave, double bytes, double kept, double begin_ms, double end_ms) {
    state_changes_.emplace_back(leave ? end_ms : begin_ms, leave ? -bytes : bytes);
    host_state_bytes_ += kept;
  }

  /// Bytes of others that pass through the device.
  void pass(double bytes, double from_ms, double to_ms) {
    changes_.emplace_back(from_ms, bytes);
    changes_.emplace_back(to_ms, -bytes);
  }

  MemoryPeaks peaks() const;  ///< Cost: O(changes log changes).

 private:
  using Changes = std::vector<std::pair<double, double>>;  ///< Time, bytes.
  struct Part {
    MessageEnd end;
    std::size_t actions_left = 0;
    bool open = false;
    double bytes = 0;
  };
  Part* find(const MessageEnd& end);

  double state_bytes_ = 0;
  double host_bytes_ = 0, peak_host_bytes_ = 0;  ///< Of activations.
  double host_state_bytes_ = 0;                  ///< Of moments and parameters, all the time.
  std::vector<Part> parts_;                      ///< Sorted by `end`.
  Changes changes_;                              ///< Of activations.
  Changes state_changes_;
};

}  // namespace troupe::scheduler
