// Writes samples, pictures and tone sequences below one folder, and their JSON at the end.
//
// What both of the demo's data sets share. One owner; the first failure to write is kept and told
// by `finish`.

#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/made/demo_data.hpp"
#include "runtime/data/made/demo_media.hpp"
#include "runtime/vocabulary/random.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

class DemoWriter {
 public:
  /// A clip and what is to be heard in it.
  struct Tones {
    std::string file;
    std::string heard;
  };

  DemoWriter(std::filesystem::path folder, std::uint64_t seed)
      : folder_(std::move(folder)), random_(seed) {}

  Random& random() { return random_; }

  /// Any shape, colour and place in a picture of this size (both sides >= 28).
  DemoPicture random_picture(std::int32_t width, std::int32_t height);

  /// Writes a picture as JPEG, PNG or PNG with transparency, in turn; returns its path below the
  /// folder. Large ones are always JPEG: PNG compresses slowly.
  std::string write_picture(const DemoPicture& picture);

  /// Writes a clip of `count` tones, 0.25 s each, at one of `rates` and mono or stereo, in turn.
  Tones write_tones(std::int32_t count, std::span<const std::int32_t> rates);

  /// `media`: the keys `image` and `audio`, where the sample has any. `turns`: human and assistant
  /// in turn.
  void add_record(const nlohmann::ordered_json& media, const std::vector<std::string>& turns);

  /// Writes samples.json. Errors: io_failed, of the first file that could not be written.
  Result<DemoSummary> finish();

  static std::string colour_of(const DemoPicture& picture);
  static std::string shape_of(const DemoPicture& picture);
  /// "a red circle"
  static std::string name_of(const DemoPicture& picture);

 private:
  void note(Status status);

  std::filesystem::path folder_;
  Random random_;
  nlohmann::ordered_json records_ = nlohmann::ordered_json::array();
  std::int32_t images_ = 0;
  std::int32_t clips_ = 0;
  Status status_ = Done{};
};

/// A sample of the uneven data set: kind and size follow from `number` and the writer's generator.
void add_uneven_sample(DemoWriter& writer, std::int32_t number);

}  // namespace troupe::data
