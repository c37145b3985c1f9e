#include "scheduler/recovery/recovery_layouts.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "scheduler/recovery/instantiate.hpp"

namespace troupe::scheduler {

namespace {

std::vector<RankList> deal_out(const RankList& nodes, const std::vector<std::int64_t>& sizes) {
  std::vector<RankList> pipelines;
  auto next = nodes.begin();
  for (const auto size : sizes) {
    pipelines.emplace_back(next, next + size);
    next += size;
  }
  return pipelines;
}

const PipelineTemplate& template_of(const RecoveryModel& model, std::size_t node_count) {
  return *std::find_if(
      model.templates.templates.begin(), model.templates.templates.end(),
      [&](const auto& made) { return static_cast<std::size_t>(made.node_count) == node_count; });
}

}  // namespace

Result<NodeLayout> combined_layout(const RecoveryModel& model, RankList nodes) {
  std::sort(nodes.begin(), nodes.end());
  InstantiateRequest request{
      {}, 0, model.fault_tolerance, model.global_batch, model.microbatch_size};
  for (const auto& made : model.templates.templates)
    request.templates.push_back({made.node_count, made.microbatch_ms});
  const auto least = (model.fault_tolerance + 1) * std::int64_t{model.templates.min_nodes};
  std::optional<Error> first;
  for (auto count = static_cast<std::int64_t>(nodes.size()); count >= least; --count) {
    request.node_count = count;
    const auto made = instantiate(request);
    if (!made.ok()) {
      if (made.error().code != Errc::infeasible) return made.error();
      if (!first) first = made.error();  // It speaks of all nodes: the one to show.
      continue;
    }
    std::vector<std::int64_t> sizes;
    for (const auto& share : made.value().pipelines) sizes.push_back(share.node_count);
    return NodeLayout{
        deal_out(nodes, sizes), {nodes.begin() + count, nodes.end()}, made.value().iteration_ms};
  }
  if (first) return *first;
  return Error{Errc::infeasible,
               std::to_string(nodes.size()) + " nodes are fewer than the " + std::to_string(least) +
                   " that f + 1 pipelines need",
               "nodes",
               {}};
}

std::optional<NodeLayout> uniform_layout(const RecoveryModel& model, RankList nodes) {
  std::sort(nodes.begin(), nodes.end());
  const auto alive = static_cast<std::int64_t>(nodes.size());
  const auto microbatches = model.global_batch / model.microbatch_size;
  std::int64_t best_size = 0, best_count = 0;
  double best_ms = 0;
  for (const auto& made : model.templates.templates) {
    const auto count = std::min(alive / made.node_count, microbatches);
    if (count < 1) continue;
    const auto largest_share = (microbatches + count - 1) / count;
    const double ms = made.microbatch_ms * static_cast<double>(largest_share);
    // Templates ascend in size, so the first of equals has the most pipelines.
    if (best_count > 0 && ms >= best_ms) continue;
    best_size = made.node_count, best_count = count, best_ms = ms;
  }
  if (best_count == 0) return std::nullopt;
  const std::vector<std::int64_t> sizes(static_cast<std::size_t>(best_count), best_size);
  return NodeLayout{
      deal_out(nodes, sizes), {nodes.begin() + best_size * best_count, nodes.end()}, best_ms};
}

std::int64_t state_bytes(const RecoveryModel& model) {
  return std::accumulate(model.layer_bytes.begin(), model.layer_bytes.end(), std::int64_t{0});
}

std::int64_t largest_node_bytes(const RecoveryModel& model, std::size_t node_count) {
  std::vector<std::int64_t> bytes(node_count);
  for (const auto& stage : template_of(model, node_count).stages)
    for (auto layer = stage.layers.begin; layer < stage.layers.end; ++layer)
      bytes[static_cast<std::size_t>(stage.node)] +=
          model.layer_bytes[static_cast<std::size_t>(layer)];
  return *std::max_element(bytes.begin(), bytes.end());
}

std::int64_t largest_transfer(const CopyPlan& plan, const std::vector<std::int64_t>& layer_bytes) {
  std::map<std::int64_t, std::int64_t> sent, received;
  for (const auto& copy : plan.copies) {
    const auto bytes = layer_bytes[static_cast<std::size_t>(copy.item)];
    sent[copy.from] += bytes;
    received[copy.to] += bytes;
  }
  std::int64_t largest = 0;
  for (const auto* side : {&sent, &received})
    for (const auto& [node, bytes] : *side) largest = std::max(largest, bytes);
  return largest;
}

}  // namespace troupe::scheduler
