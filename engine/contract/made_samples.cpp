#include "engine/contract/made_samples.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "runtime/vocabulary/random.hpp"

namespace troupe::engine {

namespace {

/// Pictures and windows of a sample, by its position; the second one is of text alone.
constexpr std::array<std::int32_t, 4> kItems{1, 0, 2, 1};

std::vector<float> noise(Random& random, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(2 * random.uniform() - 1);
  return values;
}

/// A picture of `height` x `width` squares, each of which is one row of the llm; of as many as the
/// encoder has in every picture where it says so.
data::ImagePatches picture(const VisionInput& input, std::int32_t height, std::int32_t width,
                           Random& random) {
  data::ImagePatches made;
  made.grid_height = height * input.merge_size;
  made.grid_width = width * input.merge_size;
  if (input.resize.is_fixed()) made.grid_height = made.grid_width = input.square_patches();
  made.patches = noise(random, std::int64_t{made.grid_height} * made.grid_width * input.columns());
  return made;
}

/// A window of about `rows` rows of the llm.
data::AudioWindow window(const AudioInput& input, std::int32_t rows, std::int32_t marker,
                         Random& random) {
  data::AudioWindow made;
  // One frame less than whole rows need: the last one is rounded up.
  made.frames = std::max(1, rows * input.pooled_rows * input.frames_per_row - 1);
  made.mel = noise(random, std::int64_t{made.frames} * input.mel_bins);
  made.marker = marker;
  return made;
}

data::DecodedSample made_sample(const data::DataOptions& options, std::int64_t position) {
  data::DecodedSample sample;
  sample.id = "made-" + std::to_string(position);
  sample.where = sample.id;
  sample.position = position;
  Random random(static_cast<std::uint64_t>(position));
  sample.images.resize(options.vision.size());
  sample.audio.resize(options.audio.size());
  std::string question;
  const auto odd = static_cast<std::int32_t>(position % 2);
  for (std::int32_t item = 0; item < kItems[static_cast<std::size_t>(position) % kItems.size()];
       ++item) {
    if (!options.vision.empty()) question += "<image>";
    if (!options.audio.empty()) question += "<audio>";
    for (std::size_t e = 0; e < options.vision.size(); ++e)
      sample.images[e].push_back(
          picture(options.vision[e].input, 2 - item, 2 + (item + odd) % 2, random));
    for (std::size_t e = 0; e < options.audio.size(); ++e)
      sample.audio[e].push_back(window(options.audio[e].input, 5 - 2 * item + odd, item, random));
  }
  const std::string answer(static_cast<std::size_t>(2 + position % 5), 'a');
  sample.text = data::encode_text(std::array{data::Turn{data::Role::user, question + "?"},
                                             data::Turn{data::Role::assistant, answer}});
  sample.trained_tokens = sample.text.trained_tokens();
  sample.llm_tokens = data::llm_length(sample, options);
  return sample;
}

}  // namespace

std::vector<data::DecodedSample> made_samples(const data::DataOptions& options,
                                              std::int64_t count) {
  std::vector<data::DecodedSample> samples;
  for (std::int64_t position = 0; position < count; ++position)
    samples.push_back(made_sample(options, position));
  return samples;
}

}  // namespace troupe::engine
