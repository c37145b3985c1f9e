#include "scheduler/recovery/what_if.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "scheduler/iteration/distribute.hpp"

namespace troupe::scheduler {

namespace {

using NodesOfLayer = std::vector<std::set<std::int64_t>>;

Result<const PipelineTemplate*> template_for(const TemplateSet& set, std::size_t nodes) {
  const PipelineTemplate* nearest = nullptr;
  const auto distance = [&](const PipelineTemplate& made) {
    return std::abs(made.node_count - static_cast<std::int64_t>(nodes));
  };
  for (const auto& made : set.templates)
    if (!nearest || distance(made) < distance(*nearest)) nearest = &made;
  if (nearest && distance(*nearest) == 0) return nearest;
  return Error{Errc::infeasible,
               "a pipeline of " + std::to_string(nodes) + " nodes has no template", "pipelines",
               nearest ? "nearest choice: " + std::to_string(nearest->node_count) + " nodes" : ""};
}

/// What these nodes run already, if they are a pipeline that stays as it is.
const RunningPipeline* running(const WhatIfRequest& request, const RankList& nodes) {
  const auto& pipelines = request.pipelines;
  const auto found = std::find(pipelines.begin(), pipelines.end(), nodes);
  if (found == pipelines.end() || request.running.empty()) return nullptr;
  return &request.running[static_cast<std::size_t>(found - pipelines.begin())];
}

// Adds what a pipeline's nodes hold, and returns its time per microbatch.
Result<double> hold(const WhatIfRequest& request, const RankList& nodes, NodesOfLayer& holders) {
  if (const auto* own = running(request, nodes)) {
    const auto layers = std::min(own->holders.size(), holders.size());
    for (std::size_t layer = 0; layer < layers; ++layer)
      holders[layer].insert(own->holders[layer].begin(), own->holders[layer].end());
    return own->microbatch_ms;
  }
  const auto found = template_for(request.templates, nodes.size());
  if (!found.ok()) return found.error();
  for (const auto& stage : found.value()->stages)
    for (auto layer = stage.layers.begin; layer < stage.layers.end; ++layer) {
      if (static_cast<std::size_t>(layer) >= holders.size())
        return Error{Errc::invalid_argument,
                     "layer " + std::to_string(layer) + " of the templates has no size",
                     "layer_bytes",
                     {}};
      holders[static_cast<std::size_t>(layer)].insert(nodes[static_cast<std::size_t>(stage.node)]);
    }
  return found.value()->microbatch_ms;
}

Result<Configuration> configure(const WhatIfRequest& request, std::vector<RankList> pipelines,
                                NodesOfLayer& holders) {
  Configuration made;
  std::vector<double> microbatch_ms;
  holders.assign(request.layer_bytes.size(), {});
  for (const auto& nodes : pipelines) {
    const auto ms = hold(request, nodes, holders);
    if (!ms.ok()) return ms.error();
    microbatch_ms.push_back(ms.value());
  }
  auto split = distribute(microbatch_ms, request.global_batch, request.microbatch_size);
  if (!split.ok()) return split.error();
  made.microbatches = std::move(split).value();
  for (std::size_t i = 0; i < microbatch_ms.size(); ++i)
    made.iteration_ms =
        std::max(made.iteration_ms, microbatch_ms[i] * static_cast<double>(made.microbatches[i]));
  made.pipelines = std::move(pipelines);
  return made;
}

PipelineOrigin origin_of(const WhatIfRequest& request, const RankList& nodes) {
  const std::set<std::int64_t> lost(request.lost.begin(), request.lost.end());
  const std::set<std::int64_t> now(nodes.begin(), nodes.end());
  PipelineOrigin origin;
  std::size_t old_nodes = 0, whole = 0;
  for (std::size_t p = 0; p < request.pipelines.size(); ++p) {
    std::size_t here = 0, left = 0;
    for (const auto node : request.pipelines[p]) {
      if (lost.contains(node)) continue;
      ++left;
      here += now.contains(node) ? 1U : 0U;
    }
    if (here == 0) continue;
    origin.sources.push_back(p);
    old_nodes += here;
    whole += here == left ? 1U : 0U;
  }
  if (old_nodes == 0)
    origin.change = PipelineChange::created;
  else if (origin.sources.size() > 1)
    origin.change = whole > 1 ? PipelineChange::merged : PipelineChange::borrowed;
  else if (old_nodes < nodes.size())
    origin.change = PipelineChange::grown;
  else if (old_nodes < request.pipelines[origin.sources.front()].size())
    origin.change = PipelineChange::reinstantiated;
  return origin;
}

}  // namespace

std::string_view to_string(PipelineChange change) {
  switch (change) {
    case PipelineChange::kept: return "kept";
    case PipelineChange::reinstantiated: return "reinstantiated";
    case PipelineChange::borrowed: return "borrowed";
    case PipelineChange::merged: return "merged";
    case PipelineChange::grown: return "grown";
    case PipelineChange::created: return "created";
  }
  return "";
}

Result<WhatIf> what_if(const WhatIfRequest& request) {
  auto pipelines = reconfigure({request.pipelines, request.templates.min_nodes, 1,
                                request.fault_tolerance, request.lost, request.joined});
  if (!pipelines.ok()) return pipelines.error();
  return change_pipelines(request, std::move(pipelines).value());
}

Result<WhatIf> change_pipelines(const WhatIfRequest& request, std::vector<RankList> pipelines) {
  if (!request.running.empty() && request.running.size() != request.pipelines.size())
    return Error{Errc::invalid_argument,
                 std::to_string(request.running.size()) + " entries for " +
                     std::to_string(request.pipelines.size()) + " pipelines",
                 "running",
                 {}};
  NodesOfLayer held, needed;
  auto before = configure(request, request.pipelines, held);
  if (!before.ok()) return before.error();
  auto after = configure(request, std::move(pipelines), needed);
  if (!after.ok()) return after.error();
  std::vector<CopyItem> items;
  for (std::size_t layer = 0; layer < held.size(); ++layer) {
    // A node that is lost and comes back under its id comes back empty.
    for (const auto node : request.lost) held[layer].erase(node);
    items.push_back(
        {layer < request.layer_names.size() ? request.layer_names[layer] : std::to_string(layer),
         request.layer_bytes[layer],
         {held[layer].begin(), held[layer].end()},
         {needed[layer].begin(), needed[layer].end()}});
  }
  auto copies = plan_copies(items, request.copy_search_steps);
  if (!copies.ok()) return copies.error();
  WhatIf made{std::move(before).value(), std::move(after).value(), {}, std::move(copies).value()};
  for (const auto& nodes : made.after.pipelines) made.origins.push_back(origin_of(request, nodes));
  return made;
}

}  // namespace troupe::scheduler
