#include "runtime/observe/run_event.hpp"

#include <nlohmann/json.hpp>

namespace troupe::observe {

namespace {

using Json = nlohmann::ordered_json;

void add_phases(const RunEvent& event, Json& json) {
  json["detect_ms"] = event.detect_ms;
  if (event.waited_ms > 0) json["waited_ms"] = event.waited_ms;
  if (!event.has_layout) return;
  json["decide_ms"] = event.decide_ms;
  json["connect_ms"] = event.connect_ms;
  json["copy_ms"] = event.copy_ms;
  json["copy_bytes"] = event.copy_bytes;
  json["senders"] = event.senders;
  json["rebuild_ms"] = event.rebuild_ms;
  json["decode_ms"] = event.decode_ms;
  json["replay_ms"] = event.replay_ms;
  if (event.samples_per_s_before > 0) json["samples_per_s_before"] = event.samples_per_s_before;
  if (event.samples_per_s_first > 0) json["samples_per_s_first"] = event.samples_per_s_first;
}

}  // namespace

std::string event_line(const RunEvent& event) {
  Json nodes = Json::array();
  for (const NodeId node : event.nodes) nodes.push_back(node.value);
  Json json = {{"time", event.time}, {"step", event.step}, {"generation", event.generation},
               {"kind", event.kind}, {"nodes", nodes},     {"why", event.why}};
  if (event.incarnation > 0) json["incarnation"] = event.incarnation;
  if (event.has_phases) add_phases(event, json);
  json["tolerance_left"] = event.tolerance_left;
  if (event.warm_up_steps > 0) {
    json["warm_up_ms"] = event.warm_up_ms;
    json["warm_up_bytes"] = event.warm_up_bytes;
    json["warm_up_steps"] = event.warm_up_steps;
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace troupe::observe
