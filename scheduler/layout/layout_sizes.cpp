#include "scheduler/layout/layout_sizes.hpp"

#include <algorithm>
#include <set>

namespace troupe::scheduler {

PipelineSizes::PipelineSizes(const AutoLayoutRequest& request, StageWidths widths)
    : request_(request), widths_(widths) {
  const ModelGraph& model = request.model->graph();
  for (std::size_t m = 0; m < model.modules.size(); ++m)
    (ModuleId{m} == model.llm() ? llm_layers_ : encoder_layers_) +=
        static_cast<std::int32_t>(model.modules[m].layers.size());
  equal_ = widths.encoder == widths.llm || encoder_layers_ == 0;
}

std::vector<std::int32_t> PipelineSizes::pipeline_counts() const {
  constexpr std::int32_t kAllBelow = 16;
  const auto& cluster = request_.cluster;
  const std::int32_t wide = std::max(widths_.encoder, widths_.llm);
  const std::int32_t groups = cluster.nodes * (cluster.devices_per_node / wide);
  const auto most =
      static_cast<std::int32_t>(std::min<std::int64_t>(groups, request_.global_batch));
  std::vector<std::int32_t> counts;
  if (const auto dp = pinned_pipelines(request_); dp > 0) {
    if (dp <= most) counts.push_back(dp);
    return counts;
  }
  for (std::int32_t dp = 1; dp <= most; ++dp)
    if (dp <= kAllBelow || groups % dp == 0 || cluster.nodes % dp == 0) counts.push_back(dp);
  return counts;
}

std::vector<std::int32_t> PipelineSizes::shares(std::int32_t pipelines) const {
  const auto& cluster = request_.cluster;
  // Stages of one width fill nodes as far as their width divides the node.
  const std::int32_t in_node =
      equal_ ? cluster.devices_per_node / widths_.llm : cluster.devices_per_node;
  const std::int32_t units = cluster.nodes * in_node;
  const std::int32_t unit = equal_ ? widths_.llm : 1;
  std::vector<std::int32_t> sizes;
  for (std::int32_t p = 0; p < pipelines; ++p) {
    // Unequal widths: equal shares, so that one shape serves all.
    const bool larger = equal_ && p < units % pipelines;
    const std::int32_t own = units / pipelines + (larger ? 1 : 0);
    const std::int64_t llm_stages =
        std::int64_t{cluster.nodes} * (cluster.devices_per_node / widths_.llm) / pipelines;
    sizes.push_back(request_.planned_only ? usable(unit * own, llm_stages) : unit * own);
    if (sizes.back() < least()) return {};
  }
  return sizes;
}

std::vector<std::int32_t> PipelineSizes::smaller(std::int32_t share) const {
  constexpr std::int32_t kAllBelow = 8;
  if (!request_.planned_only) return {};
  std::set<std::int32_t> sizes;
  const auto add = [&](std::int32_t size) {
    if (size >= least() && size < share) sizes.insert(size);
  };
  for (std::int32_t stages = 1; stages * widths_.llm < share;
       stages += stages < kAllBelow ? 1 : stages) {
    const std::int32_t llm = std::min(stages, llm_layers_) * widths_.llm;
    if (equal_) {
      add(stages * widths_.llm);
    } else {  // With one stage of encoders, and with as many devices as the llm's at most.
      add(llm + widths_.encoder);
      add(llm + widths_.encoder * std::min(encoder_layers_, llm / widths_.encoder));
    }
  }
  return {sizes.begin(), sizes.end()};
}

std::int64_t PipelineSizes::most() const {
  return equal_ ? std::int64_t{widths_.llm} * (encoder_layers_ + llm_layers_)
                : std::int64_t{widths_.encoder} * encoder_layers_ +
                      std::int64_t{widths_.llm} * llm_layers_;
}

std::int32_t PipelineSizes::usable(std::int32_t devices, std::int64_t llm_stages) const {
  if (equal_) return static_cast<std::int32_t>(std::min<std::int64_t>(devices, most()));
  std::int32_t best = 0;
  const auto stages = std::min<std::int64_t>({llm_stages, llm_layers_, devices / widths_.llm});
  for (std::int32_t llm = 1; llm <= stages; ++llm) {
    const std::int32_t left = devices - llm * widths_.llm;
    const std::int32_t encoders = std::min(encoder_layers_, left / widths_.encoder);
    if (encoders > 0) best = std::max(best, llm * widths_.llm + encoders * widths_.encoder);
  }
  return best;
}

std::int32_t pinned_pipelines(const AutoLayoutRequest& request) {
  for (const auto& [name, pins] : request.pins)
    if (pins.dp) return *pins.dp;
  return 0;
}

}  // namespace troupe::scheduler
