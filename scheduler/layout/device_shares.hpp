// How the devices of a cluster may be shared out among module groups that each have a number of
// replicas of their own, 3 of an encoder beside 2 of the llm; or how encoders stand on the llm's.
//
// Pure, on numbers alone. Helper of replica_candidates.cpp: bounds on times say what is worth to be
// cut and simulated.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

namespace troupe::scheduler {

/// What one copy of a module group weighs, for one mean microbatch.
struct GroupLoad {
  std::int32_t layers = 1;
  std::int32_t width = 1;  ///< Devices of a stage.
  double work_ms = 0, largest_layer_ms = 0;
  double bytes = 0, largest_layer_bytes = 0;  ///< State, and one microbatch in flight.
  double trained_bytes = 0;                   ///< State whose gradients are summed.
  std::optional<std::int32_t> pinned;         ///< Replicas that it must have.
};

struct ShareRequest {
  std::vector<GroupLoad> groups;  ///< Encoders, each on its own, then the llm.
  std::int32_t devices = 1;
  std::int32_t llm_replicas = 1;
  std::int64_t microbatches = 1;  ///< Of each llm replica and step.
  bool may_idle = false;          ///< False: every device gets a stage.
  /// Encoders stand on the llm's devices, in as many places of their width as its stages have, and
  /// take turns with it. REQUIRES, if so: the llm's width is a multiple of all others.
  bool colocated = false;
  double device_memory = 0;  ///< Bytes of one device; 0: not limited.
  /// What it takes to add up so many bytes of state over so many replicas of so many devices each.
  std::function<double(std::int32_t replicas, std::int32_t devices, double bytes)> reduction_ms;
  std::size_t count = 1;                                          ///< How many shares are wanted.
  double bound_max_ms = std::numeric_limits<double>::infinity();  ///< None with a larger bound.
};

/// Stages of a group: each replica has `stages` of them, the first `longer` replicas one more.
struct GroupShare {
  std::int32_t replicas = 1;
  std::int32_t stages = 1;
  std::int32_t longer = 0;

  std::int32_t all_stages() const { return replicas * stages + longer; }

  friend bool operator==(const GroupShare&, const GroupShare&) = default;
};

struct DeviceShare {
  std::vector<GroupShare> groups;  ///< As those of the request.
  double bound_ms = 0;             ///< No cut of these stages has a shorter `shared_step_ms`.
};

/// What is known of a group once its replicas are cut.
struct GroupTimes {
  double slowest_ms = 0;     ///< The slowest stage.
  double trained_bytes = 0;  ///< The most of a stage.
};

/// Way of the first microbatch through the longest group and the llm, then as many turns of the
/// slowest stage as its replica has microbatches left, then the longest sum of gradients. An
/// encoder replica has an equal part of the microbatches of all llm replicas. What stands on the
/// same devices adds up: ways and turns of encoders, the llm's turns, all sums of gradients.
double shared_step_ms(const ShareRequest& request, const std::vector<GroupShare>& groups,
                      const std::vector<GroupTimes>& times);

/// The shares with the least bound, cheapest first; ties: fewer stages of the llm, then shorter
/// encoders. The llm has the replicas of the request, the others those of their pins, or any number
/// on a few devices, on many for each number of stages as many as there is room for (where devices
/// may idle also as many as keep the llm busy). Left out is what gives all groups one number of
/// replicas, what cannot fit, and more replicas than there are microbatches. Of several encoder
/// groups one share is tried for each number of devices that is left to them.
///
/// Colocated encoders have any number of replicas on a few places, on many for each number of
/// stages as many as there are places for; they fill all places, or as many as their layers allow.
/// Of several groups each has the share that is best for it alone.
///
/// REQUIRES: at least one group before the llm's; counts >= 1.
/// Cost: O(devices x layers), with several encoder groups O(devices^2).
std::vector<DeviceShare> share_devices(const ShareRequest& request);

}  // namespace troupe::scheduler
