#include "balancer/loads/distributions.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/vocabulary/random.hpp"

namespace troupe::balancer {

namespace {

constexpr std::array kAll{Distribution::image_text,  Distribution::charts, Distribution::captions,
                          Distribution::multi_image, Distribution::video,  Distribution::audio,
                          Distribution::mixed};

std::int64_t tokens(Random& random, double median, double sigma, double least, double most) {
  return std::llround(std::clamp(random.log_normal(median, sigma), least, most));
}

std::vector<std::int64_t> items(Random& random, std::uint64_t count, double median, double sigma) {
  std::vector<std::int64_t> lengths(count);
  for (auto& length : lengths) length = tokens(random, median, sigma, 16, 4096);
  return lengths;
}

SampleLengths draw(Random& random, Distribution distribution) {
  switch (distribution) {
    case Distribution::image_text:
      return {items(random, 1, 576, 0.4), tokens(random, 320, 0.7, 8, 4096)};
    case Distribution::charts:
      return {items(random, 1, 512, 0.9), tokens(random, 300, 0.9, 16, 4096)};
    case Distribution::captions:
      return {items(random, 1, 300, 0.15), tokens(random, 24, 0.4, 4, 128)};
    case Distribution::multi_image:
      return {items(random, 2 + random.below(7), 256, 0.5), tokens(random, 200, 0.6, 8, 2048)};
    case Distribution::video:
      // Frames of one video have one size.
      return {std::vector<std::int64_t>(8 + random.below(57), tokens(random, 64, 0.3, 16, 256)),
              tokens(random, 80, 0.6, 4, 1024)};
    case Distribution::audio: {
      const double seconds = std::clamp(random.log_normal(8, 0.7), 1.0, 30.0);
      return {{std::llround(25 * seconds)}, tokens(random, 4 * seconds, 0.25, 2, 512)};
    }
    case Distribution::mixed: break;
  }
  return draw(random, kAll[random.below(kAll.size() - 1)]);
}

}  // namespace

std::span<const Distribution> distributions() { return kAll; }

std::string_view to_string(Distribution distribution) {
  switch (distribution) {
    case Distribution::image_text: return "image-text";
    case Distribution::charts: return "charts";
    case Distribution::captions: return "captions";
    case Distribution::multi_image: return "multi-image";
    case Distribution::video: return "video";
    case Distribution::audio: return "audio";
    case Distribution::mixed: return "mixed";
  }
  return "unknown";
}

std::vector<SampleLengths> generate_lengths(Distribution distribution, std::size_t count,
                                            std::uint64_t seed) {
  Random random(seed);
  std::vector<SampleLengths> samples;
  samples.reserve(count);
  for (std::size_t i = 0; i < count; ++i) samples.push_back(draw(random, distribution));
  return samples;
}

Workload workload_of(const SampleLengths& lengths, const CostCurve& curve) {
  Workload workload;
  double sequence = static_cast<double>(lengths.text);
  for (const auto item : lengths.media) {
    const auto length = static_cast<double>(item);
    workload.encoder_ms +=
        curve.encoder_ms_per_token * length + curve.encoder_ms_per_square * length * length;
    sequence += length;
  }
  workload.llm_ms =
      curve.llm_ms_per_token * sequence + curve.llm_ms_per_square * sequence * sequence;
  return workload;
}

std::vector<Workload> generate_workloads(Distribution distribution, std::size_t count,
                                         std::uint64_t seed, const CostCurve& curve) {
  std::vector<Workload> workloads;
  workloads.reserve(count);
  for (const auto& lengths : generate_lengths(distribution, count, seed))
    workloads.push_back(workload_of(lengths, curve));
  return workloads;
}

}  // namespace troupe::balancer
