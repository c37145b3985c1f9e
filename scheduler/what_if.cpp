#include "scheduler/what_if.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "scheduler/distribute.hpp"

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

// Adds what a pipeline's nodes hold, and returns its time per microbatch.
Result<double> hold(const WhatIfRequest& request, const RankList& nodes, NodesOfLayer& holders) {
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

}  // namespace

Result<WhatIf> what_if(const WhatIfRequest& request) {
  auto pipelines = reconfigure({request.pipelines, request.templates.min_nodes, 1,
                                request.fault_tolerance, request.lost, request.joined});
  if (!pipelines.ok()) return pipelines.error();
  return change_pipelines(request, std::move(pipelines).value());
}

Result<WhatIf> change_pipelines(const WhatIfRequest& request, std::vector<RankList> pipelines) {
  NodesOfLayer held, needed;
  auto before = configure(request, request.pipelines, held);
  if (!before.ok()) return before.error();
  auto after = configure(request, std::move(pipelines), needed);
  if (!after.ok()) return after.error();
  std::vector<CopyItem> items;
  for (std::size_t layer = 0; layer < held.size(); ++layer) {
    // A node that is lost and comes back under its id comes back empty.
    for (const auto node : request.lost) held[layer].erase(node);
    items.push_back({std::to_string(layer),
                     request.layer_bytes[layer],
                     {held[layer].begin(), held[layer].end()},
                     {needed[layer].begin(), needed[layer].end()}});
  }
  auto copies = plan_copies(items);
  if (!copies.ok()) return copies.error();
  return WhatIf{std::move(before).value(), std::move(after).value(), std::move(copies).value()};
}

}  // namespace troupe::scheduler
