#include "runtime/data/reading/log_mel.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <kissfft/kissfft.hh>
#include <map>
#include <memory>
#include <mutex>
#include <numbers>
#include <string>

#include "runtime/data/reading/read_audio.hpp"

namespace troupe::data {
namespace {

constexpr std::int32_t kFrameSamples = 400;
constexpr std::size_t kFrequencies = kFrameSamples / 2 + 1;

// Slaney's scale: linear to 1 kHz (66.67 Hz a mel), then logarithmic, 27 mel per factor of 6.4.
constexpr double kHertzPerMel = 200.0 / 3;
constexpr double kBreakMel = 1000 / kHertzPerMel;

double mel_to_hertz(double mel) {
  if (mel < kBreakMel) return mel * kHertzPerMel;
  return 1000 * std::exp(std::log(6.4) / 27 * (mel - kBreakMel));
}

double hertz_to_mel(double hertz) {
  if (hertz < 1000) return hertz / kHertzPerMel;
  return kBreakMel + std::log(hertz / 1000) / (std::log(6.4) / 27);
}

/// The part of a row of the filter bank that is not zero.
struct MelFilter {
  std::size_t begin = 0;
  std::vector<double> weights;
};

std::vector<MelFilter> sparse_filters(std::int32_t bins) {
  const std::vector<double> dense = mel_filters(bins);
  std::vector<MelFilter> filters;
  for (auto row = dense.begin(); row != dense.end(); row += kFrequencies) {
    const auto is_used = [](double weight) { return weight != 0; };
    const auto row_end = row + kFrequencies;
    const auto first = std::find_if(row, row_end, is_used);
    auto last = first;
    for (auto at = first; at != row_end; ++at)
      if (is_used(*at)) last = at + 1;
    filters.push_back({static_cast<std::size_t>(first - row), {first, last}});
  }
  return filters;
}

/// Filters are made once per number of bins and then shared.
const std::vector<MelFilter>& shared_filters(std::int32_t bins) {
  static std::mutex mutex;
  static std::map<std::int32_t, std::vector<MelFilter>> made;
  const std::lock_guard lock(mutex);
  auto found = made.find(bins);
  if (found == made.end()) found = made.emplace(bins, sparse_filters(bins)).first;
  return found->second;  // Map nodes never move.
}

const std::array<double, kFrameSamples>& hann_window() {
  static const auto window = [] {
    std::array<double, kFrameSamples> made{};
    for (std::size_t i = 0; i < made.size(); ++i)
      made[i] = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(i) / kFrameSamples);
    return made;
  }();
  return window;
}

/// Sample `at` of the signal continued by reflection at both ends, without repeating the ends.
float reflected(std::span<const float> samples, std::int64_t at) {
  const std::int64_t last = std::ssize(samples) - 1;
  at = std::abs(at) % (2 * last);
  return samples[static_cast<std::size_t>(at > last ? 2 * last - at : at)];
}

/// Power of each frequency in the frame centred at sample `center`.
class PowerSpectrum {
 public:
  explicit PowerSpectrum(std::span<const float> samples) : samples_(samples) {}

  const std::array<double, kFrequencies>& at(std::int64_t center) {
    static const kissfft<double> transform(kFrameSamples / 2, false);
    const std::int64_t begin = center - kFrameSamples / 2;
    const auto& window = hann_window();
    const bool is_inside = begin >= 0 && begin + kFrameSamples <= std::ssize(samples_);
    for (std::int64_t i = 0; i < kFrameSamples; ++i) {
      const auto place = static_cast<std::size_t>(i);
      const float sample = is_inside ? samples_[static_cast<std::size_t>(begin + i)]
                                     : reflected(samples_, begin + i);
      frame_[place] = sample * window[place];
    }
    transform.transform_real(frame_.data(), spectrum_.data());
    // The library packs the two real ends into the first value.
    power_.front() = spectrum_[0].real() * spectrum_[0].real();
    power_.back() = spectrum_[0].imag() * spectrum_[0].imag();
    for (std::size_t i = 1; i + 1 < kFrequencies; ++i) power_[i] = std::norm(spectrum_[i]);
    return power_;
  }

 private:
  std::span<const float> samples_;
  std::array<double, kFrameSamples> frame_{};
  std::array<std::complex<double>, kFrameSamples / 2> spectrum_{};
  std::array<double, kFrequencies> power_{};
};

double log_energy(const MelFilter& filter, const std::array<double, kFrequencies>& power) {
  double energy = 0;
  for (std::size_t i = 0; i < filter.weights.size(); ++i)
    energy += filter.weights[i] * power[filter.begin + i];
  return std::log10(std::max(energy, 1e-10));
}

}  // namespace

std::vector<double> mel_filters(std::int32_t bins) {
  std::vector<double> edges;  // In Hz: bin b rises from edge b to b + 1 and falls to b + 2.
  const double top = hertz_to_mel(kSampleRate / 2);
  for (std::int32_t i = 0; i < bins + 2; ++i) edges.push_back(mel_to_hertz(top * i / (bins + 1)));

  std::vector<double> filters;
  for (std::size_t bin = 0; bin + 2 < edges.size(); ++bin) {
    const double low = edges[bin], middle = edges[bin + 1], high = edges[bin + 2];
    for (std::size_t i = 0; i < kFrequencies; ++i) {
      const double hertz = static_cast<double>(i) * kSampleRate / kFrameSamples;
      const double slope =
          std::min((hertz - low) / (middle - low), (high - hertz) / (high - middle));
      filters.push_back(std::max(slope, 0.0) * 2 / (high - low));
    }
  }
  return filters;
}

MelFrames log_mel(std::span<const float> samples, std::int32_t bins) {
  const auto& filters = shared_filters(bins);
  MelFrames out;
  out.frames = static_cast<std::int32_t>(std::ssize(samples) / kHopSamples);
  std::vector<double> logs;
  logs.reserve(static_cast<std::size_t>(out.frames) * filters.size());
  PowerSpectrum spectrum(samples);
  for (std::int64_t frame = 0; frame < out.frames; ++frame) {
    const auto& power = spectrum.at(frame * kHopSamples);
    for (const auto& filter : filters) logs.push_back(log_energy(filter, power));
  }
  const double floor = *std::max_element(logs.begin(), logs.end()) - 8;
  out.mel.reserve(logs.size());
  for (const double value : logs)
    out.mel.push_back(static_cast<float>((std::max(value, floor) + 4) / 4));
  return out;
}

Result<std::vector<MelFrames>> log_mel_windows(std::span<const float> clip, std::int32_t bins,
                                               bool pad) {
  if (std::ssize(clip) < kHopSamples)
    return Error{Errc::bad_data,
                 "the clip has " + std::to_string(clip.size()) +
                     " samples at 16 kHz, less than the 160 of one frame",
                 "", ""};
  std::vector<MelFrames> windows;
  for (; std::ssize(clip) >= kHopSamples;
       clip = clip.subspan(std::min<std::size_t>(kWindowSamples, clip.size()))) {
    const auto window = clip.first(std::min<std::size_t>(kWindowSamples, clip.size()));
    if (pad && window.size() < kWindowSamples) {
      std::vector<float> padded(window.begin(), window.end());
      padded.resize(kWindowSamples);
      windows.push_back(log_mel(padded, bins));
    } else {
      windows.push_back(log_mel(window, bins));
    }
  }
  return windows;
}

}  // namespace troupe::data
