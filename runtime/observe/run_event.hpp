// A line of events.jsonl: what happened to a running job that its user should know.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/units.hpp"

namespace troupe::observe {

/// Phases that an event did not have take 0 ms. Where losses, leaves and joins meet in one change
/// of layout each kind has a line; what the change took stands in the first.
struct RunEvent {
  std::string time;                 ///< UTC, as `utc_now` writes it.
  std::int64_t step = 0;            ///< The first one after it.
  EpochNumber generation = 0;       ///< After it.
  std::string kind;                 ///< `layout`.
  std::vector<NodeId> nodes;        ///< Whom it is about; of a layout, those that work in it.
  std::string why;                  ///< A clause for people.
  std::int64_t incarnation = 0;     ///< Of the head that took the run over; 0: none did.
  bool has_phases = true;           ///< false: the line before, of the same generation, has them.
  bool has_layout = true;           ///< false: none followed, `detect_ms` and `waited_ms` are all.
  bool is_under_way = false;        ///< It has begun, and is told once more when it is over.
  double detect_ms = 0;             ///< From the first sign of a loss until it counted as one.
  double waited_ms = 0;             ///< For nodes on their way, before it went on.
  double decide_ms = 0;             ///< Until it was known what to do, without that.
  double connect_ms = 0;            ///< To new peers, of the slowest node.
  double copy_ms = 0;               ///< Of state that moved, once all had connected.
  std::int64_t copy_bytes = 0;      ///< Between nodes.
  std::int32_t senders = 0;         ///< Nodes that sent of it to others.
  double rebuild_ms = 0;            ///< Of stages.
  double decode_ms = 0;             ///< In which the first step waited for samples newly dealt.
  double replay_ms = 0;             ///< Of that step, most often one that is trained again, else.
  double samples_per_s_before = 0;  ///< Of the last step before, without its waits; 0: unknown.
  double samples_per_s_first = 0;   ///< The same of the first step after; 0: none has ended yet.
  double warm_up_ms = 0;            ///< In which who joined took state over, while others trained;
                                    ///< its connecting stands in `connect_ms`.
  std::int64_t warm_up_bytes = 0;   ///< Of it.
  std::int64_t warm_up_steps = 0;   ///< During which it came.
  std::int32_t tolerance_left = 0;  ///< Nodes that may be lost, whichever, and all state is left.
};

/// One line without a newline.
std::string event_line(const RunEvent& event);

}  // namespace troupe::observe
