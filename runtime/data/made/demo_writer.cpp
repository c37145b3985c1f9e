#include "runtime/data/made/demo_writer.hpp"

#include <algorithm>
#include <fstream>

namespace troupe::data {
namespace {

/// Pixels from which a picture is a JPEG whatever its turn.
constexpr std::int32_t kLargePixels = 65536;

std::string padded(std::int32_t number) {
  std::string digits = std::to_string(number);
  return std::string(digits.size() < 4 ? 4 - digits.size() : 0, '0') + digits;
}

}  // namespace

DemoPicture DemoWriter::random_picture(std::int32_t width, std::int32_t height) {
  DemoPicture picture;
  picture.width = width;
  picture.height = height;
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

std::string DemoWriter::write_picture(const DemoPicture& picture) {
  const std::int32_t way = picture.width * picture.height > kLargePixels ? 0 : images_ % 5;
  const std::string name = "images/" + padded(images_++) + (way < 2 ? ".jpg" : ".png");
  const auto path = folder_ / name;
  note(way < 2    ? write_jpeg(path, draw(picture))
       : way == 2 ? write_cut_out_png(path, picture)
                  : write_png(path, draw(picture)));
  return name;
}

DemoWriter::Tones DemoWriter::write_tones(std::int32_t count, std::span<const std::int32_t> rates) {
  std::vector<std::size_t> tones(static_cast<std::size_t>(count));
  std::string heard;
  for (auto& tone : tones) {
    tone = random_.below_unbiased(kDemoTones.size());
    heard += (heard.empty() ? "" : " ") + std::string(kDemoTones[tone].name);
  }
  const std::int32_t rate = rates[static_cast<std::size_t>(clips_) % rates.size()];
  const std::int32_t channels = clips_ % 3 == 2 ? 2 : 1;
  const std::string name = "audio/" + padded(clips_++) + ".wav";
  note(write_wav(folder_ / name, play(tones, rate), rate, channels));
  return {name, heard};
}

void DemoWriter::add_record(const nlohmann::ordered_json& media,
                            const std::vector<std::string>& turns) {
  nlohmann::ordered_json record = {
      {"id", "demo" + padded(static_cast<std::int32_t>(records_.size()))}};
  record.update(media);
  for (std::size_t i = 0; i < turns.size(); ++i)
    record["conversations"].push_back(
        {{"from", i % 2 == 0 ? "human" : "gpt"}, {"value", turns[i]}});
  records_.push_back(std::move(record));
}

Result<DemoSummary> DemoWriter::finish() {
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

std::string DemoWriter::colour_of(const DemoPicture& picture) {
  return std::string(kDemoColours[picture.colour].name);
}

std::string DemoWriter::shape_of(const DemoPicture& picture) {
  return std::string(kDemoShapes[static_cast<std::size_t>(picture.shape)]);
}

std::string DemoWriter::name_of(const DemoPicture& picture) {
  return "a " + colour_of(picture) + " " + shape_of(picture);
}

void DemoWriter::note(Status status) {
  if (status_.ok() && !status.ok()) status_ = std::move(status);
}

}  // namespace troupe::data
