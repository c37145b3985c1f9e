#include "runtime/observe/run_event.hpp"

#include <nlohmann/json.hpp>

namespace troupe::observe {

std::string event_line(const RunEvent& event) {
  using Json = nlohmann::ordered_json;
  Json nodes = Json::array();
  for (const NodeId node : event.nodes) nodes.push_back(node.value);
  Json json = {{"time", event.time},
               {"step", event.step},
               {"generation", event.generation},
               {"kind", event.kind},
               {"nodes", nodes},
               {"why", event.why},
               {"detect_ms", event.detect_ms},
               {"decide_ms", event.decide_ms},
               {"connect_ms", event.connect_ms},
               {"copy_ms", event.copy_ms},
               {"copy_bytes", event.copy_bytes},
               {"rebuild_ms", event.rebuild_ms},
               {"replay_ms", event.replay_ms},
               {"tolerance_left", event.tolerance_left}};
  if (event.warm_up_steps > 0) {
    json["warm_up_ms"] = event.warm_up_ms;
    json["warm_up_bytes"] = event.warm_up_bytes;
    json["warm_up_steps"] = event.warm_up_steps;
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace troupe::observe
