// Windows of microbatches: where memory is too short for the encoder forwards of a whole batch, a
// schedule of phases runs its phases over one window after the other.
//
// Source: heterogeneous parallelism, section 3.3 (three phases); windows are ours. Pure. Helper of
// schedules.cpp.

#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "scheduler/iteration/task_graph.hpp"

namespace troupe::scheduler {

/// Where the microbatches of encoders, in the places that they have in their lists, may be cut into
/// windows. A value.
class WindowCuts {
 public:
  /// Places below `places`, between any two of which there may be a cut. REQUIRES: >= 1.
  explicit WindowCuts(std::int32_t places) : last_(static_cast<std::size_t>(places)) {
    std::iota(last_.begin(), last_.end(), 0);
  }

  /// These places, and all between them, are in one window. REQUIRES: 0 <= first <= last < places.
  void join(std::int32_t first, std::int32_t last);

  /// Places of the widest window when all are as narrow as can be. Cost: O(places).
  std::int32_t least_width() const;

  /// Per place its window, from 0: as few as have `width` places at most, each as wide as can be
  /// before the next one begins. What has to be in one window and is wider has one of its own.
  /// Cost: O(places).
  std::vector<std::int32_t> windows(std::int32_t width) const;

 private:
  /// Behind the places from this one on that have to be in one window. REQUIRES: none before it is
  /// joined to it.
  std::size_t end_from(std::size_t place) const;

  std::vector<std::int32_t> last_;  ///< Per place: the last one that it is joined to.
};

/// Per task its window, from 0. What the llm does is in the last window of what it needs and of the
/// microbatches before it on its stage, so that text alone waits for nothing. What encoders do is
/// in the window of what the llm does with it: there is no cut (`WindowCuts`) between their places,
/// which are others where samples are deferred, or encoded in pieces or rounds of their own. So no
/// window waits for one behind it, and no rows for a later one.
///
/// `part_of_stage`: which stages have phases in common (`connected_parts`); windows of a part are
/// its own. `widths`: per part, microbatches of a window; 0: all of them. Where nothing is deferred
/// an encoder's microbatch is in window number / width. Cost: O(tasks log tasks + dependencies +
/// parts x microbatches). REQUIRES: no circle in the graph.
std::vector<std::int32_t> phase_windows(const TaskGraph& graph,
                                        const std::vector<std::int32_t>& part_of_stage,
                                        const std::vector<std::int32_t>& widths);

}  // namespace troupe::scheduler
