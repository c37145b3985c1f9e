#include "runtime/data/demo_data.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <set>
#include <span>

#include "golden.hpp"
#include "runtime/data/data_summary.hpp"
#include "runtime/data/demo_media.hpp"
#include "runtime/data/read_audio.hpp"
#include "runtime/data/read_image.hpp"
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
  REQUIRE(make_demo_data(folder.path() / "a", {.samples = 12, .seed = 5}).ok());
  REQUIRE(make_demo_data(folder.path() / "b", {.samples = 12, .seed = 5}).ok());
  REQUIRE(make_demo_data(folder.path() / "c", {.samples = 12, .seed = 6}).ok());
  const auto a = files_below(folder.path() / "a");
  CHECK(a == files_below(folder.path() / "b"));
  CHECK(a != files_below(folder.path() / "c"));
  REQUIRE(make_demo_data(folder.path() / "c", {.samples = 12, .seed = 5}).ok());  // Replaces.
  CHECK(a == files_below(folder.path() / "c"));
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
