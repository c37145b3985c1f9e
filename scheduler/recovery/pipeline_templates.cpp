#include "scheduler/recovery/pipeline_templates.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "scheduler/recovery/template_search.hpp"

namespace troupe::scheduler {

namespace {

std::string text(std::int64_t value) { return std::to_string(value); }

std::optional<Error> check_time(double value, std::size_t layer, const std::string& what) {
  if (value >= 0 && std::isfinite(value)) return std::nullopt;
  const std::string where = "layers[" + std::to_string(layer) + "]." + what;
  return Error{Errc::invalid_argument,
               "expected a finite time >= 0, found " + std::to_string(value),
               where,
               {}};
}

std::optional<Error> check_layer(const TemplateLayer& layer, std::size_t index,
                                 const TemplateRequest& request) {
  if (auto error = check_time(layer.forward_ms, index, "forward_ms")) return error;
  if (auto error = check_time(layer.backward_ms, index, "backward_ms")) return error;
  std::int64_t widest = 1;
  for (const auto& [gpus, sync] : layer.in_node_sync_ms) {
    if (auto error = check_time(sync, index, "in_node_sync_ms")) return error;
    if (gpus <= request.gpus_per_node) widest = std::max<std::int64_t>(widest, gpus);
  }
  const std::string where = "layers[" + std::to_string(index) + "].memory_bytes";
  if (layer.memory < Bytes{})
    return Error{Errc::invalid_argument,
                 "expected bytes >= 0, found " + text(layer.memory.count()),
                 where,
                 {}};
  if (static_cast<double>(layer.memory.count()) >
      static_cast<double>(request.device_memory.count()) * static_cast<double>(widest))
    return Error{Errc::infeasible,
                 "the layer needs " + text(layer.memory.count()) + " bytes, but the " +
                     text(widest) + " GPUs that may share it hold " +
                     text(request.device_memory.count()) + " each",
                 where,
                 "nearest choice: " + text((layer.memory.count() - 1) / widest + 1) +
                     " bytes per device, or in_node_sync_ms for more GPUs of a node"};
  return std::nullopt;
}

std::optional<Error> check_cluster(const TemplateRequest& request) {
  const auto below = [](std::int64_t value, std::int64_t least, const char* where) {
    return value >= least ? std::nullopt
                          : std::optional<Error>{
                                Error{Errc::invalid_argument,
                                      "expected at least " + text(least) + ", found " + text(value),
                                      where,
                                      {}}};
  };
  if (auto error = below(request.node_count, 1, "nodes")) return error;
  if (auto error = below(request.gpus_per_node, 1, "gpus_per_node")) return error;
  if (auto error = below(request.fault_tolerance, 0, "fault_tolerance")) return error;
  if (auto error = below(request.device_memory.count(), 1, "device_memory_bytes")) return error;
  if (auto error = below(request.min_nodes.value_or(1), 1, "min_nodes")) return error;
  return below(request.microbatches.value_or(1), 1, "microbatches");
}

// Keeps time and memory bounded whatever is asked for.
std::optional<Error> check_size(const TemplateRequest& request) {
  const auto layer_count = static_cast<std::int64_t>(request.layers.size());
  if (layer_count == 0)
    return Error{Errc::infeasible, "there are no layers", "layers", "give at least one"};
  if (request.gpus_per_node > 1024)
    return Error{Errc::invalid_argument,
                 "found " + text(request.gpus_per_node) + " GPUs per node, at most 1024 work",
                 "gpus_per_node", "nearest choice: 1024"};
  // A pipeline has no more nodes than layers, so further nodes cost nothing.
  const std::int64_t nodes = std::min(request.node_count, layer_count);
  const std::int64_t gpus = nodes * request.gpus_per_node;
  const std::int64_t layers_max = std::min(kTemplateLayersMax, kTemplateStatesMax / gpus);
  if (layer_count <= kTemplateLayersMax && layer_count <= layers_max) return std::nullopt;
  const std::int64_t possible = std::max<std::int64_t>(
      1, std::min<std::int64_t>(
             kTemplateLayersMax,
             kTemplateStatesMax /
                 (std::min(request.node_count, kTemplateLayersMax) * request.gpus_per_node)));
  return Error{Errc::invalid_argument,
               text(layer_count) + " layers on " + text(gpus) +
                   " GPUs are more than the planner takes (layers x GPUs <= " +
                   text(kTemplateStatesMax) + ", layers <= " + text(kTemplateLayersMax) + ")",
               "layers", "group layers into blocks of " + text((layer_count - 1) / possible + 1)};
}

// T1-T3 of one finished template, eq. 2.1-2.3 as printed.
void add_printed_terms(PipelineTemplate& made, const std::vector<double>& stage_ms,
                       std::int64_t microbatches) {
  const auto slowest = std::max_element(stage_ms.begin(), stage_ms.end());
  const auto k_star = slowest - stage_ms.begin();
  const auto stage_count = static_cast<std::int64_t>(stage_ms.size());
  for (const double stage : stage_ms) made.t1_ms += stage;
  made.t2_ms = static_cast<double>(microbatches - stage_count + k_star - 1) * *slowest;
  for (auto stage = slowest; stage != stage_ms.end(); ++stage) made.t3_ms += *stage;
  made.iteration_ms = made.t1_ms + static_cast<double>(microbatches - 1) * *slowest;
  made.microbatch_ms = made.iteration_ms / static_cast<double>(microbatches);
}

class Maker {
 public:
  explicit Maker(const TemplateRequest& request)
      : request_(request),
        layer_count_(static_cast<std::int64_t>(request.layers.size())),
        search_(request.layers, static_cast<std::int32_t>(request.gpus_per_node),
                request.device_memory) {}

  Result<TemplateSet> make() {
    const auto least = least_nodes();
    if (!least.ok()) return least.error();
    const std::int64_t n0 = least.value();
    const std::int64_t f = request_.fault_tolerance;
    if (f >= request_.node_count || request_.node_count < (f + 1) * n0)
      return Error{Errc::infeasible,
                   "fault tolerance " + text(f) + " needs (f + 1) x n0 nodes with n0 = " +
                       text(n0) + ", the cluster has " + text(request_.node_count),
                   "fault_tolerance",
                   "nearest choice: fault_tolerance = " + text(request_.node_count / n0 - 1) +
                       (f < 1'000'000 ? ", or " + text((f + 1) * n0) + " nodes" : "")};
    TemplateSet set;
    set.min_nodes = static_cast<std::int32_t>(n0);
    for (const TemplateLayer& layer : request_.layers)
      set.layer_ms.push_back(layer.forward_ms + layer.backward_ms);
    set.microbatches = microbatches_of(request_.node_count);
    const std::int64_t largest = std::min(request_.node_count - f * n0, layer_count_);
    for (std::int64_t nodes = n0; nodes <= largest; ++nodes)
      if (exists(nodes)) set.templates.push_back(make_one(nodes));
    return set;
  }

 private:
  bool exists(std::int64_t nodes) {
    return nodes <= layer_count_ && search_.extend(static_cast<std::int32_t>(nodes));
  }

  // n0: the given one if it has a template, else the smallest that has.
  Result<std::int64_t> least_nodes() {
    const std::int64_t first = request_.min_nodes.value_or(1);
    if (request_.min_nodes && first <= request_.node_count && exists(first)) return first;
    const std::int64_t last = std::min(request_.node_count, layer_count_);
    std::int64_t nearest = 0;
    for (std::int64_t nodes = 1; nodes <= last; ++nodes) {
      if (!exists(nodes)) continue;
      if (!request_.min_nodes) return nodes;
      if (nearest == 0 || std::abs(nodes - first) < std::abs(nearest - first)) nearest = nodes;
    }
    return no_template(first, nearest);
  }

  Error no_template(std::int64_t wanted, std::int64_t nearest) const {
    if (nearest > 0)
      return {Errc::infeasible,
              "a pipeline of " + text(wanted) + " nodes has no template: " +
                  (wanted > request_.node_count ? "the cluster has " + text(request_.node_count)
                   : wanted > layer_count_
                       ? "each node needs a layer and there are " + text(layer_count_)
                       : "its stages do not fit into device memory, or outnumber the layers"),
              "min_nodes", "nearest choice: min_nodes = " + text(nearest)};
    double bytes = 0;
    for (const auto& layer : request_.layers) bytes += static_cast<double>(layer.memory.count());
    const double gpus = bytes / static_cast<double>(request_.device_memory.count());
    const auto nodes =
        static_cast<std::int64_t>(std::ceil(gpus / static_cast<double>(request_.gpus_per_node)));
    return {Errc::infeasible,
            nodes > request_.node_count
                ? "the model needs the memory of at least " + text(nodes) +
                      " nodes, the cluster has " + text(request_.node_count)
                : "no pipeline of 1 to " + text(request_.node_count) +
                      " nodes uses all its GPUs within device memory and one node per stage",
            "nodes",
            nodes > request_.node_count
                ? "nearest choice: " + text(nodes) + " nodes or more, or larger devices"
                : "add in_node_sync_ms for more GPU counts, nodes, or device memory"};
  }

  std::int64_t microbatches_of(std::int64_t nodes) const {
    return request_.microbatches.value_or(4 *
                                          std::min(layer_count_, nodes * request_.gpus_per_node));
  }

  PipelineTemplate make_one(std::int64_t nodes) {
    const std::int64_t microbatches = microbatches_of(nodes);
    PipelineTemplate made;
    made.node_count = static_cast<std::int32_t>(nodes);
    made.stages = search_.best(made.node_count, microbatches);
    std::vector<double> stage_ms;
    for (const auto& stage : made.stages) stage_ms.push_back(search_.stage_ms(stage));
    add_printed_terms(made, stage_ms, microbatches);
    return made;
  }

  const TemplateRequest& request_;
  std::int64_t layer_count_;
  TemplateSearch search_;
};

}  // namespace

Result<TemplateSet> make_templates(const TemplateRequest& request) {
  if (auto error = check_cluster(request)) return *error;
  if (auto error = check_size(request)) return *error;
  for (std::size_t i = 0; i < request.layers.size(); ++i)
    if (auto error = check_layer(request.layers[i], i, request)) return *error;
  return Maker(request).make();
}

Result<TemplateSet> make_templates_in_flight(TemplateRequest request,
                                             const LayersInFlight& layers) {
  request.min_nodes = std::nullopt;
  for (std::int64_t least = 1; least <= request.node_count;) {
    auto holding = layers(least * std::max<std::int64_t>(request.gpus_per_node, 1));
    if (!holding.ok()) return std::move(holding).error();
    request.layers = std::move(holding).value();
    auto set = make_templates(request);
    if (!set.ok() || set.value().min_nodes <= least) return set;
    least = set.value().min_nodes;  // Fewer do not hold what even more have in flight.
  }
  return Error{Errc::infeasible,
               text(request.node_count) +
                   " nodes do not hold the model and the activations of as many microbatches as "
                   "they have devices",
               "nodes", "give more nodes or larger devices, or recompute activations"};
}

}  // namespace troupe::scheduler
