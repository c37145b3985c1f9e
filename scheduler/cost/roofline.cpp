#include "scheduler/cost/roofline.hpp"

#include <algorithm>
#include <cstddef>

#include "scheduler/cost/measured_ratios.hpp"
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

  /// Whether logits are cut into chunks, so that passes are made of other products.
  bool is_in_chunks(const LayerWork& work, TokenCount tokens, Parallelism parallelism) const {
    const double rows = static_cast<double>(tokens) / parallelism.cp;
    return work.logit_chunks(rows, element_, parallelism.tp) > 1;
  }

  /// Of the measured sizes of a kind, those with logits in chunks or those without.
  KindRatios ratios(const LayerWork& work, const std::vector<LayerProfile>& measured,
                    bool in_chunks) const {
    std::vector<ComparedPoint> compared;
    for (const auto& profile : measured) {
      if (profile.kind != work.kind || profile.parallelism != Parallelism{} ||
          profile.origin != CostOrigin::measured)
        continue;
      for (const auto& seen : profile.points)
        if (seen.tokens > 0 && is_in_chunks(work, seen.tokens, {}) == in_chunks)
          compared.push_back({seen, point(work, seen.tokens, {})});
    }
    return KindRatios(compared, launch_ms_);
  }

  void correct(const LayerWork& work, const KindRatios& ratios, Parallelism parallelism,
               ProfilePoint& made) const {
    const double rows = static_cast<double>(made.tokens) / parallelism.cp;
    ratios.correct(rows, collective_ms(work, rows, parallelism), made);
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

double total_ms(const LayerProfile& profile) {
  double sum = 0;
  for (const auto& point : profile.points)
    for (const auto* part : {&point.linear, &point.attention})
      sum += part->forward_ms + part->input_grad_ms + part->weight_grad_ms;
  return sum;
}

}  // namespace

std::vector<LayerProfile> computed_profiles(const std::vector<LayerWork>& works,
                                            const DeviceSpec& device,
                                            const std::vector<Parallelism>& parallelisms,
                                            const RooflineOptions& options,
                                            const std::vector<LayerProfile>& measured) {
  const Roofline roofline(device, options);
  std::vector<LayerProfile> profiles;
  for (const auto& work : works) {
    // Layers of a kind share one profile.
    if (std::any_of(profiles.begin(), profiles.end(),
                    [&](const auto& made) { return made.kind == work.kind; }))
      continue;
    const KindRatios whole = roofline.ratios(work, measured, /*in_chunks=*/false);
    const KindRatios in_chunks = roofline.ratios(work, measured, /*in_chunks=*/true);
    for (const auto parallelism : parallelisms) {
      if (!shares_heads(work, parallelism.tp)) continue;
      LayerProfile made{
          work.kind, parallelism, CostOrigin::computed, roofline.parameters(work, parallelism), {}};
      for (TokenCount tokens = 64; tokens <= 16384; tokens *= 2) {
        made.points.push_back(roofline.point(work, tokens, parallelism));
        const bool is_cut = roofline.is_in_chunks(work, tokens, parallelism);
        roofline.correct(work, is_cut ? in_chunks : whole, parallelism, made.points.back());
      }
      profiles.push_back(std::move(made));
    }
  }
  return profiles;
}

std::vector<KindCorrection> kind_corrections(const std::vector<LayerProfile>& computed,
                                             const std::vector<LayerProfile>& corrected) {
  std::vector<KindCorrection> list;
  for (std::size_t i = 0; i < computed.size(); ++i) {
    if (computed[i].parallelism != Parallelism{}) continue;
    auto& made = list.emplace_back(KindCorrection{computed[i].kind, std::nullopt});
    if (computed[i].points != corrected[i].points)
      made.factor = total_ms(corrected[i]) / total_ms(computed[i]);
  }
  return list;
}

}  // namespace troupe::scheduler
