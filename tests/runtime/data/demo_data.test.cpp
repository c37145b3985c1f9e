#include "runtime/data/made/demo_data.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <map>
#include <set>
#include <span>

#include "golden.hpp"
#include "runtime/data/made/demo_media.hpp"
#include "runtime/data/reading/read_audio.hpp"
#include "runtime/data/reading/read_image.hpp"
#include "runtime/data/samples/data_summary.hpp"
#include "temp_folder.hpp"

namespace troupe::data {
namespace {

DataOptions options_for(const std::filesystem::path& folder) {
  DataOptions options;
  options.sources = {{folder / "samples.json", folder, "llava"}};
  return options;
}

/// All files below a folder with their bytes.
std::map<std::string, std::string> files_below(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files[std::filesystem::relative(entry.path(), folder).string()] = file_bytes(entry.path());
  return files;
}

TEST_CASE("make_demo_data writes good samples of every kind", "[data]") {
  TempFolder folder;
  auto made = make_demo_data(folder.path() / "demo", {.samples = 60, .seed = 1});
  REQUIRE(made.ok());
  const DataOptions options = options_for(folder.path() / "demo");
  auto dataset = Dataset::open(options);
  REQUIRE(dataset.ok());
  const DataSummary summary = summarize(dataset.value(), options, 2);
  CHECK(to_text(summary).find("dropped none") != std::string::npos);
  CHECK(summary.bad.empty());
  CHECK(summary.samples == 60);
  CHECK(made.value().samples == 60);
  // Of ten: 4 pictures, 2 tones, 2 + 3 pictures, picture and tones, text.
  CHECK(summary.with_images == 42);
  CHECK(summary.with_audio == 18);
  CHECK(summary.text_only == 6);
  CHECK(summary.image_patches.count == 6 * (4 + 2 + 3 + 1));
  CHECK(made.value().images == 60);
  CHECK(made.value().clips == 18);
  CHECK(summary.image_patches.smallest < summary.image_patches.largest);
  CHECK(summary.audio_frames.smallest < summary.audio_frames.largest);
}

TEST_CASE("make_demo_data gives the same files for the same seed", "[data]") {
  TempFolder folder;
  const bool uneven = GENERATE(false, true);
  REQUIRE(make_demo_data(folder.path() / "a", {.samples = 20, .seed = 5, .uneven = uneven}).ok());
  REQUIRE(make_demo_data(folder.path() / "b", {.samples = 20, .seed = 5, .uneven = uneven}).ok());
  REQUIRE(make_demo_data(folder.path() / "c", {.samples = 20, .seed = 6, .uneven = uneven}).ok());
  const auto a = files_below(folder.path() / "a");
  CHECK(a == files_below(folder.path() / "b"));
  CHECK(a != files_below(folder.path() / "c"));
  REQUIRE(make_demo_data(folder.path() / "c", {.samples = 20, .seed = 5, .uneven = uneven}).ok());
  auto c = files_below(folder.path() / "c");
  // Files are replaced; those that another seed needed besides stay.
  std::erase_if(c, [&a](const auto& file) { return a.count(file.first) == 0; });
  CHECK(a == c);
}

TEST_CASE("the uneven data set has every kind of sample", "[data]") {
  const TempFolder folder;
  const auto made = make_demo_data(folder.path(), {.samples = 64, .seed = 42, .uneven = true});
  REQUIRE(made.ok());
  const DataOptions options = options_for(folder.path());
  const auto dataset = Dataset::open(options);
  REQUIRE(dataset.ok());
  const DataSummary summary = summarize(dataset.value(), options, 2);
  CHECK(summary.bad.empty());
  // Of sixteen: text 3, pictures 3 + 2, clips 2 + 1, both 2 + 2; of four giants one of each.
  CHECK(summary.text_only == 4 * 3 + 1);
  CHECK(summary.with_images == 4 * (5 + 4) + 2);
  CHECK(summary.with_audio == 4 * (3 + 4) + 2);
  int one_picture = 0, one_clip = 0, several_pictures = 0, several_clips = 0, text_between = 0;
  for (const auto& record : dataset.value().records()) {
    const auto pictures = record.images.size(), clips = record.audio.size();
    one_picture += pictures == 1 && clips == 0 ? 1 : 0;
    one_clip += pictures == 0 && clips == 1 ? 1 : 0;
    several_pictures += pictures > 1 && clips == 0 ? 1 : 0;
    several_clips += pictures == 0 && clips > 1 ? 1 : 0;
    text_between += record.turns[0].text.find("<image>, listen to <audio>") != std::string::npos;
  }
  CHECK(one_picture == 4 * 3 + 1);
  CHECK(several_pictures == 4 * 2);
  CHECK(one_clip == 4 * 2 + 1);
  CHECK(several_clips == 4);
  CHECK(text_between == 4 * 2);
}

TEST_CASE("the uneven data set is as uneven as real data", "[data][property]") {
  const auto seed = GENERATE(range(1, 4));
  CAPTURE(seed);
  const TempFolder folder;
  REQUIRE(make_demo_data(folder.path(),
                         {.samples = 128, .seed = static_cast<std::uint64_t>(seed), .uneven = true})
              .ok());
  const DataOptions options = options_for(folder.path());
  const auto dataset = Dataset::open(options);
  REQUIRE(dataset.ok());
  const DataSummary summary = summarize(dataset.value(), options, 2);
  const auto above_mean = [](const LengthStatistics& lengths) {
    return static_cast<double>(lengths.largest * lengths.count) / static_cast<double>(lengths.sum);
  };
  CHECK(above_mean(summary.llm_tokens) > 5);
  CHECK(above_mean(summary.trained_tokens) > 5);
  CHECK(above_mean(summary.image_patches) > 5);
  CHECK(above_mean(summary.audio_frames) > 5);
  CHECK(summary.audio_frames.largest == 3000);  // A clip of more than one window.
  // Small samples are the rule, and none is empty.
  CHECK(summary.llm_tokens.p50 < summary.llm_tokens.sum / summary.llm_tokens.count);
  CHECK(summary.trained_tokens.smallest >= 1);
}

TEST_CASE("the demo's captions say what the pictures show", "[data][property]") {
  TempFolder folder;
  REQUIRE(make_demo_data(folder.path(), {.samples = 50, .seed = 3}).ok());
  auto dataset = Dataset::open(options_for(folder.path()));
  REQUIRE(dataset.ok());
  for (const auto& record : dataset.value().records()) {
    if (record.images.size() != 1) continue;
    std::string answers;
    for (const auto& turn : record.turns)
      if (turn.role == Role::assistant) answers += turn.text + " ";
    auto image = read_image(folder.path() / record.images[0], 1 << 20);
    REQUIRE(image.ok());
    // The colour that is nearest to most pixels away from the light background is the named one.
    std::map<std::string_view, int> votes;
    for (std::size_t i = 0; i < image.value().rgb.size(); i += 3) {
      const std::uint8_t* pixel = &image.value().rgb[i];
      if (std::min({pixel[0], pixel[1], pixel[2]}) > 180) continue;
      const auto distance = [pixel](const DemoColour& colour) {
        int sum = 0;
        for (std::size_t c = 0; c < 3; ++c)
          sum += (pixel[c] - colour.rgb[c]) * (pixel[c] - colour.rgb[c]);
        return sum;
      };
      ++votes[std::min_element(
                  kDemoColours.begin(), kDemoColours.end(),
                  [&](const auto& a, const auto& b) { return distance(a) < distance(b); })
                  ->name];
    }
    REQUIRE_FALSE(votes.empty());
    const auto winner =
        std::max_element(votes.begin(), votes.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    CAPTURE(record.id, answers, winner->first);
    CHECK(answers.find(winner->first) != std::string::npos);
  }
}

TEST_CASE("the demo's tones have the pitch their names say", "[data]") {
  for (std::size_t tone = 0; tone < kDemoTones.size(); ++tone) {
    TempFolder folder;
    const auto path = folder.path() / "tone.wav";
    REQUIRE(write_wav(path, play(std::span(&tone, 1), 44100), 44100, 2).ok());
    auto clip = read_audio(path, 10);
    REQUIRE(clip.ok());
    CHECK(std::abs(std::ssize(clip.value()) - 4000) <= 1);  // 0.25 s at 16 kHz.
    // Crossings upwards through zero in the 0.2 s of tone: one a period.
    int crossings = 0;
    for (std::size_t i = 100; i < 3100; ++i)
      crossings += clip.value()[i - 1] < 0 && clip.value()[i] >= 0 ? 1 : 0;
    CHECK(std::abs(crossings - kDemoTones[tone].hertz * 3000 / 16000) <= 2);
  }
}

TEST_CASE("covers draws the four shapes", "[data]") {
  DemoPicture picture{.width = 21, .height = 21, .center_x = 10, .center_y = 10, .radius = 9};
  const auto area = [&](DemoShape shape) {
    picture.shape = shape;
    int pixels = 0;
    for (int y = 0; y < 21; ++y)
      for (int x = 0; x < 21; ++x) pixels += covers(picture, x, y) ? 1 : 0;
    return pixels;
  };
  CHECK(area(DemoShape::square) == 19 * 19);
  CHECK(area(DemoShape::circle) == 253);             // Lattice points within 9 of one.
  CHECK(area(DemoShape::cross) == 2 * 7 * 19 - 49);  // Two bars of 7 x 19, crossing in 7 x 7.
  // Row y above or below the middle has half-width floor((9 + dy) / 2): 0 0 1 1 .. 8 8 9.
  CHECK(area(DemoShape::triangle) == 19 + 2 * (2 * (0 + 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8) + 9));
}

TEST_CASE("make_demo_data says what cannot be made or written", "[data][errors]") {
  TempFolder folder;
  CHECK(make_demo_data(folder.path(), {.samples = 0}).error().code == Errc::invalid_argument);
  const auto file = folder.write("file", "x");
  auto below_file = make_demo_data(file / "demo", {});
  REQUIRE_FALSE(below_file.ok());
  CHECK(below_file.error().code == Errc::io_failed);
  // A folder stands where the first picture should go.
  std::filesystem::create_directories(folder.path() / "taken/images/0000.jpg");
  auto taken = make_demo_data(folder.path() / "taken", {.samples = 3});
  REQUIRE_FALSE(taken.ok());
  CHECK(taken.error().code == Errc::io_failed);
  CHECK(taken.error().where == (folder.path() / "taken/images/0000.jpg").string());
}

}  // namespace
}  // namespace troupe::data
