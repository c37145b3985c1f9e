#include "runtime/data/demo_data.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/data/demo_media.hpp"
#include "runtime/vocabulary/random.hpp"

namespace troupe::data {
namespace {

using Json = nlohmann::ordered_json;

std::string padded(std::int32_t number) {
  std::string digits = std::to_string(number);
  return std::string(digits.size() < 4 ? 4 - digits.size() : 0, '0') + digits;
}

/// Makes sample after sample; remembers the first failure to write.
class DemoMaker {
 public:
  DemoMaker(std::filesystem::path folder, std::uint64_t seed)
      : folder_(std::move(folder)), random_(seed) {}

  void add_sample(std::int32_t number) {
    switch (number % 10) {
      case 0:
      case 4:
      case 7: return add_picture();
      case 2: return add_picture_talk();
      case 1:
      case 6: return add_tones();
      case 3: return add_pictures(2);
      case 8: return add_pictures(3);
      case 5: return add_picture_and_tones();
      default: return add_text();
    }
  }

  Result<DemoSummary> finish() {
    const auto path = folder_ / "samples.json";
    std::ofstream file(path, std::ios::binary);
    file << records_.dump(1) << '\n';
    file.close();
    if (!file && status_.ok())
      status_ = Error{Errc::io_failed, "cannot write the file", path.string(),
                      "check the folder's permissions and the space left"};
    if (!status_) return status_.error();
    return DemoSummary{static_cast<std::int32_t>(records_.size()), images_, clips_, path};
  }

 private:
  void note(Status status) {
    if (status_.ok() && !status.ok()) status_ = std::move(status);
  }

  void add_record(Json media, const std::vector<std::string>& turns) {
    Json record = {{"id", "demo" + padded(static_cast<std::int32_t>(records_.size()))}};
    record.update(media);
    for (std::size_t i = 0; i < turns.size(); ++i)
      record["conversations"].push_back(
          {{"from", i % 2 == 0 ? "human" : "gpt"}, {"value", turns[i]}});
    records_.push_back(std::move(record));
  }

  DemoPicture random_picture() {
    DemoPicture picture;
    picture.width = random_.between(56, 196);
    picture.height = random_.between(56, 196);
    picture.shape = static_cast<DemoShape>(random_.below_unbiased(kDemoShapes.size()));
    picture.colour = random_.below_unbiased(kDemoColours.size());
    const std::int32_t side = std::min(picture.width, picture.height);
    picture.radius = random_.between(side / 4, side / 2 - 4);
    picture.center_x = random_.between(picture.radius, picture.width - 1 - picture.radius);
    picture.center_y = random_.between(picture.radius, picture.height - 1 - picture.radius);
    for (auto& channel : picture.background)
      channel = static_cast<std::uint8_t>(random_.between(215, 255));
    return picture;
  }

  /// Writes a picture in one of three ways and returns its path below the folder.
  std::string write_picture(const DemoPicture& picture) {
    const std::int32_t way = images_ % 5;
    const std::string name = "images/" + padded(images_++) + (way < 2 ? ".jpg" : ".png");
    const auto path = folder_ / name;
    note(way < 2    ? write_jpeg(path, draw(picture))
         : way == 2 ? write_cut_out_png(path, picture)
                    : write_png(path, draw(picture)));
    return name;
  }

  static std::string colour_of(const DemoPicture& picture) {
    return std::string(kDemoColours[picture.colour].name);
  }
  static std::string shape_of(const DemoPicture& picture) {
    return std::string(kDemoShapes[static_cast<std::size_t>(picture.shape)]);
  }
  static std::string name_of(const DemoPicture& picture) {
    return "a " + colour_of(picture) + " " + shape_of(picture);
  }

  /// Writes a clip; returns its path and what is to be heard.
  std::pair<std::string, std::string> write_tones() {
    constexpr std::int32_t kRates[] = {8000, 16000, 22050, 44100};
    std::vector<std::size_t> tones(static_cast<std::size_t>(random_.between(2, 4)));
    std::string heard;
    for (auto& tone : tones) {
      tone = random_.below_unbiased(kDemoTones.size());
      heard += (heard.empty() ? "" : " ") + std::string(kDemoTones[tone].name);
    }
    const std::int32_t rate = kRates[clips_ % 4];
    const std::int32_t channels = clips_ % 3 == 2 ? 2 : 1;
    const std::string name = "audio/" + padded(clips_++) + ".wav";
    note(write_wav(folder_ / name, play(tones, rate), rate, channels));
    return {name, heard};
  }

  void add_picture() {
    const DemoPicture picture = random_picture();
    add_record({{"image", write_picture(picture)}},
               {"<image>\nWhat is this?", name_of(picture) + "."});
  }

  void add_picture_talk() {
    const DemoPicture picture = random_picture();
    add_record({{"image", write_picture(picture)}},
               {"<image>\nWhich colour?", colour_of(picture) + ".", "Which shape?",
                shape_of(picture) + "."});
  }

  void add_pictures(std::int32_t count) {
    Json names = Json::array();
    std::string markers, answer;
    for (std::int32_t i = 0; i < count; ++i) {
      const DemoPicture picture = random_picture();
      names.push_back(write_picture(picture));
      markers += "<image>";
      answer += (i == 0 ? "" : "; ") + name_of(picture);
    }
    add_record({{"image", names}}, {markers + "\nName each picture.", answer + "."});
  }

  void add_tones() {
    const auto [name, heard] = write_tones();
    add_record({{"audio", name}}, {"<audio>\nWhich tones?", heard + "."});
  }

  void add_picture_and_tones() {
    const DemoPicture picture = random_picture();
    const auto [clip, heard] = write_tones();
    add_record({{"image", write_picture(picture)}, {"audio", clip}},
               {"<audio>\n<image>\nWhich tones, and what is this?",
                heard + "; " + name_of(picture) + "."});
  }

  void add_text() {
    constexpr const char* kNumbers[] = {"zero", "one", "two",   "three", "four",
                                        "five", "six", "seven", "eight"};
    const std::size_t colours = kDemoColours.size();
    const std::size_t pick = random_.below_unbiased(colours + kDemoShapes.size());
    const auto word = pick < colours ? kDemoColours[pick].name : kDemoShapes[pick - colours];
    add_record(Json::object(), {"How many letters has " + std::string(word) + "?",
                                std::string(kNumbers[word.size()]) + "."});
  }

  std::filesystem::path folder_;
  Random random_;
  Json records_ = Json::array();
  std::int32_t images_ = 0;
  std::int32_t clips_ = 0;
  Status status_ = Done{};
};

}  // namespace

Result<DemoSummary> make_demo_data(const std::filesystem::path& folder,
                                   const DemoOptions& options) {
  if (options.samples < 1)
    return Error{Errc::invalid_argument,
                 std::to_string(options.samples) + " samples are asked for, fewer than one", "",
                 "ask for one or more"};
  for (const char* name : {"images", "audio"}) {
    std::error_code code;
    std::filesystem::create_directories(folder / name, code);
    if (code)
      return Error{Errc::io_failed, "cannot make the folder: " + code.message(),
                   (folder / name).string(), "name a folder that can be written"};
  }
  DemoMaker maker(folder, options.seed);
  for (std::int32_t number = 0; number < options.samples; ++number) maker.add_sample(number);
  return maker.finish();
}

}  // namespace troupe::data
