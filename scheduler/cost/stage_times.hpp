// A pipeline described by the times of its stages alone, and its task graph.
//
// Pure. What `troupe solve schedule` and simulations of clusters that nobody has start from.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "scheduler/iteration/task_graph.hpp"

namespace troupe::scheduler {

/// A part of a microbatch on a stage; part -1: all of them.
struct PartRef {
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;
  std::int32_t part = -1;

  friend auto operator<=>(const PartRef&, const PartRef&) = default;
};

/// One stage. Lists are per microbatch; a list of one entry stands for every microbatch.
struct StageTimes {
  std::string name;
  std::int32_t device = 0;
  bool encoder = false;            ///< Which phase it belongs to, where a schedule has phases.
  std::vector<std::int32_t> next;  ///< Stages that take its rows.
  std::vector<double> forward_ms;
  std::vector<double> input_grad_ms;
  std::vector<double> weight_grad_ms;
  /// Per microbatch, shares of time of its parts that sum to 1; empty: one part each.
  std::vector<std::vector<double>> parts;
  /// Per microbatch, upstream parts that its forward needs; none: part p of microbatch m of every
  /// stage before it for part p of m, or all parts where their numbers differ.
  std::optional<std::vector<std::vector<PartRef>>> needs;

  std::size_t part_count(std::int32_t microbatch) const {
    return parts.empty() ? 1 : parts[parts.size() == 1 ? 0 : std::size_t(microbatch)].size();
  }
};

/// The whole pipeline, or several side by side.
struct PipelineTimes {
  std::vector<StageTimes> stages;
  std::int32_t microbatches = 1;
  double link_ms = 0;  ///< Between stages on different devices.
  /// Own time of a link from one stage to another; its gradients take as long, unless the reverse
  /// direction is listed as well.
  std::map<std::pair<std::int32_t, std::int32_t>, double> links;

  std::int32_t device_count() const;
};

/// Refuses what has no meaning.
///
/// Errors:
/// - invalid_argument: no stages, two of one name, indices out of range, lists of a wrong length,
///   times that are negative or not finite, shares that do not sum to 1 within 1e-6, stages in a
///   circle, a need of a stage that does not feed this one, more than 20 million tasks.
Status check_times(const PipelineTimes& times);

/// The task graph. Every part has a forward; a part listed in `split` (sorted), or every part if
/// `split_all`, has an input and a weight gradient, another one a backward. Times of 0 ms are kept,
/// so that a frozen stage has the same actions as any other.
///
/// REQUIRES: check_times(times).ok().
TaskGraph task_graph(const PipelineTimes& times, bool split_all,
                     const std::vector<PartRef>& split = {});

}  // namespace troupe::scheduler
