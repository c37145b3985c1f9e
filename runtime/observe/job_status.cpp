#include "runtime/observe/job_status.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/vocabulary/library_words.hpp"
#include "runtime/vocabulary/printable.hpp"

namespace troupe::observe {

namespace {

using Json = nlohmann::ordered_json;

std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

/// `working, stands by for 2 of 6 layers, silent for 3 s`.
std::string node_words(const NodeStatus& node, std::int32_t layers) {
  std::string words = node.state;
  if (node.standby_layers > 0)
    words += (node.state == "working" ? ", stands by for " : ": holds ") +
             std::to_string(node.standby_layers) + " of " + counted(layers, "layer");
  if (node.silent_s > 0)
    words += ", silent for " + std::to_string(std::lround(node.silent_s)) + " s";
  return words;
}

}  // namespace

std::string status_line(const JobStatus& status) {
  Json nodes = Json::array();
  for (const NodeStatus& node : status.nodes)
    nodes.push_back({{"node", node.node.value},
                     {"host", node.host},
                     {"pid", node.pid},
                     {"state", node.state},
                     {"devices", node.devices},
                     {"standby_layers", node.standby_layers},
                     {"silent_s", node.silent_s}});
  const Json json = {{"job", status.job},
                     {"run", status.run},
                     {"phase", status.phase},
                     {"step", status.step},
                     {"total_steps", status.total_steps},
                     {"tokens", status.tokens},
                     {"step_ms", status.step_ms},
                     {"loss", status.loss},
                     {"generation", status.generation},
                     {"layout", status.layout},
                     {"layers", status.layers},
                     {"tolerance_left", status.tolerance_left},
                     {"fault_tolerance", status.fault_tolerance},
                     {"min_nodes", status.min_nodes},
                     {"spares", status.spares},
                     {"join", status.join},
                     {"saved_step", status.saved_step},
                     {"is_saving", status.is_saving},
                     {"nodes", std::move(nodes)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<JobStatus> read_status(const std::string& line) {
  try {
    const Json json = Json::parse(line);
    JobStatus status;
    json.at("job").get_to(status.job);
    json.at("run").get_to(status.run);
    json.at("phase").get_to(status.phase);
    json.at("step").get_to(status.step);
    json.at("total_steps").get_to(status.total_steps);
    json.at("tokens").get_to(status.tokens);
    // A loss that is not finite is `null` in JSON.
    status.step_ms = json.at("step_ms").is_number() ? json.at("step_ms").get<double>() : 0;
    status.loss = json.at("loss").is_number() ? json.at("loss").get<double>() : std::nan("");
    json.at("generation").get_to(status.generation);
    json.at("layout").get_to(status.layout);
    json.at("layers").get_to(status.layers);
    json.at("tolerance_left").get_to(status.tolerance_left);
    json.at("fault_tolerance").get_to(status.fault_tolerance);
    json.at("min_nodes").get_to(status.min_nodes);
    json.at("spares").get_to(status.spares);
    json.at("join").get_to(status.join);
    json.at("saved_step").get_to(status.saved_step);
    json.at("is_saving").get_to(status.is_saving);
    for (const Json& own : json.at("nodes")) {
      NodeStatus& node = status.nodes.emplace_back();
      own.at("node").get_to(node.node.value);
      own.at("host").get_to(node.host);
      own.at("pid").get_to(node.pid);
      own.at("state").get_to(node.state);
      own.at("devices").get_to(node.devices);
      own.at("standby_layers").get_to(node.standby_layers);
      own.at("silent_s").get_to(node.silent_s);
    }
    return status;
  } catch (const Json::exception& fault) {
    return Error{Errc::bad_data,
                 "the job's answer makes no sense: " + without_code(fault.what()),
                 {},
                 "use the troupe that the job runs"};
  }
}

std::string status_text(const JobStatus& status) {
  std::ostringstream text;
  text << status.job << ": " << status.phase << ", step " << status.step;
  if (status.total_steps > 0) text << " of " << status.total_steps;
  text << " done";
  if (status.step > 0 && status.step_ms > 0)
    text << ", loss " << status.loss << ", " << std::lround(status.step_ms) << " ms a step";
  text << "\n";
  if (!status.layout.empty())
    text << "layout " << status.generation << ": " << status.layout << "; "
         << (status.tolerance_left > 0 ? counted(status.tolerance_left, "node") + " may be lost"
                                       : "no node may be lost")
         << (status.fault_tolerance > 0
                 ? " (promised: " + std::to_string(status.fault_tolerance) + ")"
                 : "")
         << "\n";
  if (status.min_nodes > 0) text << "at least " << counted(status.min_nodes, "node");
  if (status.spares > 0)
    text << (status.min_nodes > 0 ? ", " : "") << counted(status.spares, "spare node");
  if (status.min_nodes > 0 || status.spares > 0) text << "\n";
  text << (status.saved_step > 0 ? "newest checkpoint: step " + std::to_string(status.saved_step)
                                 : std::string("no checkpoint yet"))
       << (status.is_saving ? "; one is being written" : "") << "\n";
  for (const NodeStatus& node : status.nodes) {
    text << "node " << node.node.value << "  " << node_words(node, status.layers);
    if (!node.host.empty()) text << "  " << node.host << ", pid " << node.pid;
    if (node.devices > 0) text << "  " << counted(node.devices, "device");
    text << "\n";
  }
  return printable(text.str());  // Hosts and names are what others sent.
}

}  // namespace troupe::observe
