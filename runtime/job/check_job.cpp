#include "runtime/job/check_job.hpp"

#include <algorithm>
#include <cstdlib>

#include "models/family/registry.hpp"
#include "runtime/files/look_up.hpp"
#include "runtime/vocabulary/host_port.hpp"
#include "runtime/vocabulary/joined.hpp"

namespace troupe::job {

namespace {

void check_identity(const Identity& identity, Findings& findings) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  const auto& name = identity.name;
  if (name.empty() || name.front() == '.' || !std::all_of(name.begin(), name.end(), good))
    findings.add_at("job.name", "job.name: '" + name + "' cannot be the name of a folder here",
                    "use letters, digits, -, _ and . (not first)");
}

void check_data(const Job& job, bool modules_complete, Findings& findings) {
  const auto& data = job.data;
  const bool is_wrong = findings.origins.contains("data.sources") && data.sources.empty();
  if (data.sources.empty() && (is_wrong || !findings.origins.contains("data.sources")))
    findings.add_at("data", "data.sources: no data to train on",
                    "add [[data.sources]] with json = \"samples.json\" and media = \"FOLDER\"");
  if (data.min_pixels > data.max_pixels)
    findings.add_at("data.min_pixels",
                    "data.min_pixels " + std::to_string(data.min_pixels) +
                        " is above data.max_pixels " + std::to_string(data.max_pixels),
                    "lower min_pixels or raise max_pixels");
  const auto& index = data.index;
  if (index != kIndexAuto && index != kIndexOff && index.find('/') == std::string::npos)
    findings.add_at("data.index",
                    "data.index: '" + index + "' is neither auto nor off nor a path with a slash",
                    "write auto, off, or a folder as \"./" +
                        (index.empty() ? std::string("lengths") : index) + "\"");
  if (!modules_complete) return;
  for (const auto& module : job.modules) {
    const auto media = models::media_input(module);
    if (media.medium != Medium::image || media.vision.resize.is_fixed()) continue;
    const std::int64_t side = media.vision.factor();
    if (data.max_pixels < side * side)
      findings.add_at("data.max_pixels",
                      "data.max_pixels " + std::to_string(data.max_pixels) +
                          " holds not one merged patch of modules." + module.name,
                      "give at least " + std::to_string(side * side) + " (" + std::to_string(side) +
                          " x " + std::to_string(side) + ")");
  }
}

/// Sources that only some nodes see.
void check_source_nodes(const Job& job, Findings& findings) {
  const std::int32_t count = job.cluster.nodes;
  for (std::size_t i = 0; i < job.data.sources.size(); ++i) {
    const auto& source = job.data.sources[i];
    const auto path = "data.sources[" + std::to_string(i) + "]";
    if (source.nodes.empty()) continue;
    if (source.nodes.back() >= count)
      findings.add_at(path + ".nodes",
                      path + ".nodes: there is no node " + std::to_string(source.nodes.back()) +
                          ", the job has " + std::to_string(count),
                      count == 1 ? "node 0 is the only one: leave nodes out, or raise cluster.nodes"
                                 : "name nodes from 0 to " + std::to_string(count - 1) +
                                       ", or raise cluster.nodes");
    if (findings.paths == Paths::must_exist && !files::is_there(source.json))
      findings.warnings.push_back(
          {Errc::not_found,
           path + ".json: " + source.json.string() + " is not there, which may be: only nodes " +
               joined(source.nodes) + " see it",
           findings.where(path + ".json"),
           "have the list of samples also where `troupe train` runs, which orders them"});
  }
}

void check_files(const Data& data, Findings& findings) {
  for (std::size_t i = 0; i < data.sources.size(); ++i) {
    const auto path = "data.sources[" + std::to_string(i) + "]";
    const auto& source = data.sources[i];
    if (files::is_folder(source.json))
      findings.add_at(path + ".json", path + ".json: " + source.json.string() + " is a folder",
                      "name the JSON file in it");
    if (files::is_there(source.media) && !files::is_folder(source.media))
      findings.add_at(path + ".media", path + ".media: " + source.media.string() + " is no folder",
                      "name the folder that image and audio paths start from");
  }
}

void check_train(const Job& job, Findings& findings) {
  const auto& train = job.train;
  if (train.global_batch_size < train.microbatches)
    findings.add_at("train.microbatches",
                    "train.microbatches " + std::to_string(train.microbatches) +
                        " is more than train.global_batch_size " +
                        std::to_string(train.global_batch_size),
                    "a microbatch needs a sample: lower microbatches or raise the batch");
  const std::int64_t copies = llm_copies(job);
  if (train.global_batch_size < copies)
    findings.add_at("train.global_batch_size",
                    "train.global_batch_size " + std::to_string(train.global_batch_size) +
                        " is less than one sample for each of " + std::to_string(copies) + " " +
                        llm_copies_noun(job),
                    "raise it to at least " + std::to_string(copies));
  if (job.optimizer.min_lr > job.optimizer.lr)
    findings.add_at("optimizer.min_lr", "optimizer.min_lr is above optimizer.lr",
                    "min_lr is where the schedule ends: give at most lr");
}

/// A door that other machines reach needs a key that they know.
void check_door(const Cluster& cluster, Findings& findings) {
  const auto address = parse_host_port(cluster.listen);
  if (!address.ok())
    return findings.add_at("cluster.listen",
                           "cluster.listen: '" + cluster.listen + "' is no HOST:PORT",
                           "write an address of this machine and a port, as \"10.0.0.4:29500\"");
  if (findings.paths == Paths::of_another_machine) return;  // Where the job listens already.
  const char* key = std::getenv("TROUPE_KEY");
  const bool has_key = !cluster.key.empty() || (key != nullptr && *key != 0);
  if (!has_key && !address.value().is_loopback())
    findings.add_at("cluster.listen",
                    "cluster.listen: '" + cluster.listen +
                        "' is open to other machines, and the job has no key: anybody could join",
                    "make one with `troupe key new FILE`, and give every machine cluster.key, "
                    "--key or TROUPE_KEY");
}

void check_cluster(const Cluster& cluster, Findings& findings) {
  if (cluster.local_nodes > cluster.nodes)
    findings.add_at("cluster.local_nodes",
                    "cluster.local_nodes " + std::to_string(cluster.local_nodes) +
                        " is more than cluster.nodes " + std::to_string(cluster.nodes),
                    "cluster.nodes counts all nodes, the local ones included");
  if (cluster.spares >= cluster.nodes)
    findings.add_at("cluster.spares",
                    "cluster.spares " + std::to_string(cluster.spares) + " leaves no node of " +
                        std::to_string(cluster.nodes) + " to work",
                    "cluster.nodes counts all nodes, the spare ones included");
  if (cluster.min_nodes > cluster.nodes)
    findings.add_at("cluster.min_nodes",
                    "cluster.min_nodes " + std::to_string(cluster.min_nodes) +
                        " is more than cluster.nodes " + std::to_string(cluster.nodes),
                    "give at most the number of nodes of the job");
  check_door(cluster, findings);
  if (cluster.heartbeat_timeout_s <= cluster.heartbeat_interval_s)
    findings.add_at("cluster.heartbeat_timeout_s",
                    "cluster.heartbeat_timeout_s is not above cluster.heartbeat_interval_s",
                    "wait for several heartbeats: give at least three intervals");
}

/// REQUIRES: the job's modules are complete.
void check_module_name(const Job& job, const std::string& key, const std::string& name,
                       const std::string& fix, Findings& findings) {
  if (std::none_of(job.modules.begin(), job.modules.end(),
                   [&](const auto& module) { return module.name == name; }))
    findings.add_at(key, key + ": no module is called '" + name + "'", fix);
}

void check_observers(const Job& job, Findings& findings) {
  for (std::size_t i = 0; i < job.observe.observers.size(); ++i) {
    const auto& watch = job.observe.observers[i];
    const auto path = "observe.observers[" + std::to_string(i) + "]";
    if (!watch.module.empty())
      check_module_name(job, path + ".module", watch.module,
                        "name a module of [modules], or leave it out for all", findings);
  }
}

void check_observe(const Observation& observe, Findings& findings) {
  if (observe.metrics_listen.empty() || parse_host_port(observe.metrics_listen).ok()) return;
  findings.add_at("observe.metrics_listen",
                  "observe.metrics_listen: '" + observe.metrics_listen + "' is no HOST:PORT",
                  "write a port, which is then on this machine alone, as \"9400\", or an address "
                  "and a port, as \"10.0.0.4:9400\"");
}

void check_delays(const Job& job, Findings& findings) {
  if (job.debug.delayed_device_ms > 0 && job.cluster.device != "cpu")
    findings.add_at("debug.delayed_device_ms",
                    "debug.delayed_device_ms makes CPUs late, and cluster.device is \"" +
                        job.cluster.device + "\"",
                    "leave it out, or train with cluster.device = \"cpu\"");
}

void check_slow_shapes(const Job& job, Findings& findings) {
  for (std::size_t i = 0; i < job.debug.slow_shapes.size(); ++i) {
    const auto& shape = job.debug.slow_shapes[i];
    const auto path = "debug.slow_shapes[" + std::to_string(i) + "]";
    check_module_name(job, path + ".module", shape.module, "name a module of [modules]", findings);
    if (shape.node && *shape.node >= job.cluster.nodes)
      findings.add_at(path + ".node",
                      path + ".node: there is no node " + std::to_string(*shape.node) + " among " +
                          std::to_string(job.cluster.nodes),
                      "name a node from 0, or leave it out for all nodes");
    if (shape.max_rows < shape.min_rows)
      findings.add_at(path + ".max_rows", path + ": max_rows is below min_rows",
                      "give the range of rows that is slow, both ends included");
    if (shape.to_step > 0 && shape.to_step < shape.from_step)
      findings.add_at(path + ".to_step", path + ": to_step is before from_step",
                      "give the steps in which it is slow, both ends included");
  }
}

}  // namespace

void check_job(BoundJob& bound, Findings& findings) {
  Job& job = bound.job;
  check_identity(job.job, findings);
  const bool usable = bound.modules_complete && check_modules(job.modules, findings);
  if (usable) check_sizes(job.modules, findings);
  if (usable && bound.layout_complete) check_layout(job, findings);
  check_data(job, bound.modules_complete, findings);
  check_files(job.data, findings);
  check_train(job, findings);
  check_cluster(job.cluster, findings);
  check_source_nodes(job, findings);
  check_observe(job.observe, findings);
  if (usable) check_slow_shapes(job, findings);
  check_delays(job, findings);
  if (usable) check_observers(job, findings);
}

}  // namespace troupe::job
