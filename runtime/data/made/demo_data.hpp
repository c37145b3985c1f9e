// Makes the demo's data set, pictures of coloured shapes and tone sequences with captions, and an
// uneven one of the same things for tests and benches of balancing.
//
// Writes files below one folder and nothing else; the same options give the same samples.

#pragma once

#include <cstdint>
#include <filesystem>

#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

struct DemoOptions {
  std::int32_t samples = 384;  ///< >= 1.
  std::uint64_t seed = 42;
  bool uneven = false;  ///< Sizes and kinds as mixed as in real data, see below.
};

/// What was written.
struct DemoSummary {
  std::int32_t samples = 0;
  std::int32_t images = 0;
  std::int32_t clips = 0;
  std::filesystem::path json;  ///< The file to name in `data.sources[].json`.
};

/// Writes `folder`/samples.json (LLaVA's format), images/ and audio/; files there are replaced.
///
/// In every ten samples: four with one picture ("a red circle."; one of them as a conversation of
/// two questions), two with a tone sequence ("low high middle."), two with two or three pictures,
/// one with a picture and tones, one of text alone (how many letters a word has). Every answer
/// follows from what the sample shows, so that a model can learn it. Pictures have sides of 56 to
/// 196 pixels, as PNG (some transparent) and JPEG; clips have 2 to 4 tones at 8 to 44.1 kHz, mono
/// or stereo. Cost: about 10 ms a sample.
///
/// Uneven: in every sixteen, three of text alone, three with one picture, two with two to five, two
/// with one clip, one with two to six, two with a picture and clips, two with pictures, clips and
/// text interleaved, and one giant: in turn one large picture, one clip of 15 to 33 s, one long
/// text, or many pictures and a long clip. Areas, seconds and words are log-normal. Cost: about
/// 3 ms a sample.
///
/// Errors:
/// - invalid_argument: samples < 1.
/// - io_failed: a folder or file cannot be written.
Result<DemoSummary> make_demo_data(const std::filesystem::path& folder, const DemoOptions& options);

}  // namespace troupe::data
