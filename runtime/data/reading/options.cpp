#include "runtime/data/reading/options.hpp"

#include <algorithm>

namespace troupe::data {
namespace {

Error wrong(std::string key, std::string message, std::string fix) {
  return {Errc::invalid_argument, std::move(message), std::move(key), std::move(fix)};
}

void add_pixel_problems(const DataOptions& options, std::vector<Error>& problems) {
  std::int64_t side = 1;
  for (const auto& encoder : options.vision)
    if (!encoder.input.resize.is_fixed())
      side = std::max<std::int64_t>(side, encoder.input.factor());
  if (options.min_pixels < 1)
    problems.push_back(wrong("data.min_pixels",
                             "is " + std::to_string(options.min_pixels) + ", not positive",
                             "set it to 1 or more (default 3136)"));
  if (options.max_pixels < side * side)
    problems.push_back(
        wrong("data.max_pixels",
              "is " + std::to_string(options.max_pixels) + ", less than the " +
                  std::to_string(side * side) + " pixels of one merged patch",
              "set it to " + std::to_string(side * side) + " or more (default 1003520)"));
  else if (options.max_pixels < options.min_pixels)
    problems.push_back(
        wrong("data.max_pixels",
              "is " + std::to_string(options.max_pixels) +
                  ", less than data.min_pixels = " + std::to_string(options.min_pixels),
              "raise data.max_pixels or lower data.min_pixels"));
}

}  // namespace

std::vector<Error> problems_of(const DataOptions& options) {
  std::vector<Error> problems;
  for (const auto& [module, vision] : options.vision)
    if (vision.patch_size < 1 || vision.merge_size < 1 || vision.temporal_patch_size < 1)
      problems.push_back(wrong("modules." + module + ".config",
                               "patch, merge and temporal sizes must be 1 or more",
                               "leave them out for 14, 2 and 2"));
    else if (vision.resize.is_fixed() && vision.resize.side < vision.factor())
      problems.push_back(wrong("modules." + module + ".config",
                               "pictures are resized to squares of " +
                                   std::to_string(vision.resize.side) + " pixels, less than the " +
                                   std::to_string(vision.factor()) + " of one merged patch",
                               "take larger squares, or smaller patches"));
  if (problems.empty()) add_pixel_problems(options, problems);
  for (const auto& [module, audio] : options.audio)
    if (audio.mel_bins < 1 || audio.mel_bins > 201)
      problems.push_back(wrong("modules." + module + ".config.num_mel_bins",
                               "is " + std::to_string(audio.mel_bins) + ", outside 1..201",
                               "use 80, or 128 for whisper-large-v3"));
  if (std::max(options.vision.size(), options.audio.size()) > kEncodersMax)
    problems.push_back(wrong("modules",
                             "more than " + std::to_string(kEncodersMax) + " encoders of a medium",
                             "leave some of them out"));
  if (options.max_seq_len < 0)
    problems.push_back(wrong("data.max_seq_len",
                             "is " + std::to_string(options.max_seq_len) + ", negative",
                             "set it to the longest sequence in tokens, or to 0 for no limit"));
  if (options.decoded_pixels_max < 1 || options.audio_seconds_max < 1)
    problems.push_back(wrong("data",
                             "the limits on decoded pixels and audio seconds must be positive",
                             "leave them out for their defaults"));
  return problems;
}

}  // namespace troupe::data
