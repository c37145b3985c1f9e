// Whisper's input features: the log-mel spectrogram of a clip, window by window.
//
// Pure; thread-safe.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

inline constexpr std::int32_t kHopSamples = 160;        ///< 10 ms at 16 kHz: one frame.
inline constexpr std::int32_t kWindowSamples = 480000;  ///< 30 s: what the encoder takes at once.

/// Log-mel features of at most 30 s, shape [frames, bins], row-major.
struct MelFrames {
  std::vector<float> mel;
  std::int32_t frames = 0;  ///< samples / 160, rounded down.
};

/// The features of one window of 16 kHz samples, as Whisper defines them: frames of 400 samples
/// every 160, centred, the ends reflected; periodic Hann window; power; `bins` triangular filters
/// on Slaney's mel scale with unit area; log10, floored at 1e-10 and at the window's largest value
/// less 8; (x + 4) / 4. The frame after the last whole hop is dropped. Computed in double.
/// Cost: O(frames x (400 log 400 + bins)).
/// REQUIRES: 160 <= samples.size() <= 480000, 1 <= bins <= 201.
MelFrames log_mel(std::span<const float> samples, std::int32_t bins);

/// Cuts a clip into windows of 30 s and gives the features of each; with `pad`, every window is
/// filled up with silence first. A rest that is shorter than one frame is left out, as the rest of
/// every clip is.
///
/// Errors:
/// - bad_data: the whole clip is shorter than one frame.
Result<std::vector<MelFrames>> log_mel_windows(std::span<const float> clip, std::int32_t bins,
                                               bool pad);

/// The filter bank, shape [bins, 201], row-major: how much each of the 201 frequencies 0, 40 ..
/// 8000 Hz adds to each bin.
std::vector<double> mel_filters(std::int32_t bins);

}  // namespace troupe::data
