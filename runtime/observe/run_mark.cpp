#include "runtime/observe/run_mark.hpp"

#include <string>

namespace troupe::observe {

double phases_ms(const RunEvent& event) {
  if (!event.has_phases) return 0;
  return event.detect_ms + event.waited_ms + event.decide_ms + event.connect_ms + event.copy_ms +
         event.rebuild_ms + event.decode_ms + event.replay_ms;
}

std::optional<TraceMark> run_mark(const RunEvent& event, std::int64_t begin_ns) {
  if (event.kind == "checkpoint") return std::nullopt;
  TraceMark mark;
  mark.name = event.kind;
  mark.time_ns = begin_ns;
  mark.step = event.step;
  mark.why = event.why;
  // Of a layout they are all that work in it, which says nothing of what happened.
  const bool is_of_nodes = event.kind != "layout" && event.kind != "resumed";
  if (is_of_nodes && !event.nodes.empty()) {
    mark.name += event.nodes.size() == 1 ? ": node" : ": nodes";
    for (const NodeId node : event.nodes) mark.name += " " + std::to_string(node.value);
  }
  mark.kind = event.kind;
  return mark;
}

}  // namespace troupe::observe
