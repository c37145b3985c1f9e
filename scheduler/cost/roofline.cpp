#include "scheduler/cost/roofline.hpp"

#include <algorithm>

#include "scheduler/cost/state_bytes.hpp"

namespace troupe::scheduler {

namespace {

class Roofline {
 public:
  Roofline(const DeviceSpec& device, const RooflineOptions& options)
      : flops_per_ms_(device.teraflops(options.dtype) * options.compute_share * 1e9),
        bytes_per_ms_(device.memory_gigabytes_per_s * options.bandwidth_share * 1e6),
        link_bytes_per_ms_(device.link_gigabytes_per_s * options.link_share * 1e6),
        launch_ms_(options.launch_ms),
        element_(bytes_per_element(options.dtype)) {}

  ProfilePoint point(const LayerWork& work, TokenCount tokens, Parallelism parallelism) const {
    const double rows = static_cast<double>(tokens) / parallelism.cp;
    const double matrix_flops = 2 * work.used_weights / parallelism.tp * rows;
    // Every pass reads the weights it uses, once a chunk, and reads and writes its rows.
    const auto chunks = static_cast<double>(work.logit_chunks(rows, element_, parallelism.tp));
    const double read = std::min(work.weights, work.used_weights) / parallelism.tp * chunks;
    const auto logits = static_cast<double>(work.logits);
    const double traffic = element_ * (read + rows * (work.activation_elements + logits));
    const double pass = std::max(matrix_flops / flops_per_ms_, traffic / bytes_per_ms_);
    const double launches = launch_ms_ * chunks;
    const double collective = collective_ms(work, rows, parallelism);
    const double attention = work.attention_flops() *
                             work.attention_pairs(static_cast<double>(tokens)) / parallelism.cp /
                             parallelism.tp / flops_per_ms_;
    ProfilePoint made;
    made.tokens = tokens;
    if (chunks > 1) {
      // Logits are not kept: the input gradient is computed beside the loss, and only scaled later.
      const double kept = work.activation_elements + static_cast<double>(work.width);
      const double scaled = rows * 2 * static_cast<double>(work.width) * element_ / bytes_per_ms_;
      made.linear = {2 * pass + collective + launches, scaled + collective + launch_ms_,
                     2 * pass + launches, rows * kept * element_ / parallelism.tp};
    } else {
      made.linear = {pass + collective + launch_ms_, pass + collective + launch_ms_,
                     pass + launch_ms_,
                     rows * (work.activation_elements + logits) * element_ / parallelism.tp};
    }
    // Backward of attention: gradients of both products, twice the forward; no weights.
    made.attention = {attention, 2 * attention, 0, 0};
    return made;
  }

  Bytes parameters(const LayerWork& work, Parallelism parallelism) const {
    return Bytes{static_cast<std::int64_t>(work.weights * element_ / parallelism.tp)};
  }

 private:
  double collective_ms(const LayerWork& work, double rows, Parallelism parallelism) const {
    const double row_bytes = rows * static_cast<double>(work.width) * element_;
    double bytes = 0;
    if (parallelism.tp > 1) bytes += 2 * 2 * row_bytes * (1 - 1.0 / parallelism.tp);
    if (parallelism.cp > 1 && work.attention_flops() > 0)
      bytes += 2 * row_bytes * (parallelism.cp - 1);
    return bytes / link_bytes_per_ms_;
  }

  double flops_per_ms_, bytes_per_ms_, link_bytes_per_ms_, launch_ms_, element_;
};

/// Whether ranks get whole heads, and as many each; keys may stand on several ranks.
bool shares_heads(const LayerWork& work, std::int32_t tp) {
  if (!work.attention) return true;
  const std::int64_t keys = work.attention->kv_heads;
  return work.attention->heads % tp == 0 && (keys % tp == 0 || tp % keys == 0);
}

}  // namespace

std::vector<LayerProfile> computed_profiles(const std::vector<LayerWork>& works,
                                            const DeviceSpec& device,
                                            const std::vector<Parallelism>& parallelisms,
                                            const RooflineOptions& options) {
  const Roofline roofline(device, options);
  std::vector<LayerProfile> profiles;
  for (const auto& work : works) {
    // Layers of a kind share one profile.
    if (std::any_of(profiles.begin(), profiles.end(),
                    [&](const auto& made) { return made.kind == work.kind; }))
      continue;
    for (const auto parallelism : parallelisms) {
      if (!shares_heads(work, parallelism.tp)) continue;
      LayerProfile made{
          work.kind, parallelism, CostOrigin::computed, roofline.parameters(work, parallelism), {}};
      for (TokenCount tokens = 64; tokens <= 16384; tokens *= 2)
        made.points.push_back(roofline.point(work, tokens, parallelism));
      profiles.push_back(std::move(made));
    }
  }
  return profiles;
}

}  // namespace troupe::scheduler
