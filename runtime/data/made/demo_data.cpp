#include "runtime/data/made/demo_data.hpp"

#include <string>
#include <vector>

#include "runtime/data/made/demo_writer.hpp"

namespace troupe::data {
namespace {

using Json = nlohmann::ordered_json;

DemoPicture small_picture(DemoWriter& writer) {
  const std::int32_t width = writer.random().between(56, 196);
  const std::int32_t height = writer.random().between(56, 196);
  return writer.random_picture(width, height);
}

DemoWriter::Tones short_clip(DemoWriter& writer) {
  constexpr std::int32_t kRates[] = {8000, 16000, 22050, 44100};
  const std::int32_t count = writer.random().between(2, 4);
  return writer.write_tones(count, kRates);
}

void add_picture(DemoWriter& writer) {
  const DemoPicture picture = small_picture(writer);
  writer.add_record({{"image", writer.write_picture(picture)}},
                    {"<image>\nWhat is this?", DemoWriter::name_of(picture) + "."});
}

void add_picture_talk(DemoWriter& writer) {
  const DemoPicture picture = small_picture(writer);
  writer.add_record({{"image", writer.write_picture(picture)}},
                    {"<image>\nWhich colour?", DemoWriter::colour_of(picture) + ".", "Which shape?",
                     DemoWriter::shape_of(picture) + "."});
}

void add_pictures(DemoWriter& writer, std::int32_t count) {
  Json names = Json::array();
  std::string markers, answer;
  for (std::int32_t i = 0; i < count; ++i) {
    const DemoPicture picture = small_picture(writer);
    names.push_back(writer.write_picture(picture));
    markers += "<image>";
    answer += (i == 0 ? "" : "; ") + DemoWriter::name_of(picture);
  }
  writer.add_record({{"image", names}}, {markers + "\nName each picture.", answer + "."});
}

void add_tones(DemoWriter& writer) {
  const auto [name, heard] = short_clip(writer);
  writer.add_record({{"audio", name}}, {"<audio>\nWhich tones?", heard + "."});
}

void add_picture_and_tones(DemoWriter& writer) {
  const DemoPicture picture = small_picture(writer);
  const auto [clip, heard] = short_clip(writer);
  writer.add_record({{"image", writer.write_picture(picture)}, {"audio", clip}},
                    {"<audio>\n<image>\nWhich tones, and what is this?",
                     heard + "; " + DemoWriter::name_of(picture) + "."});
}

void add_text(DemoWriter& writer) {
  const DemoWord word = random_word(writer.random());
  writer.add_record(Json::object(), {"How many letters has " + std::string(word.text) + "?",
                                     std::string(word.letters) + "."});
}

void add_sample(DemoWriter& writer, std::int32_t number) {
  switch (number % 10) {
    case 0:
    case 4:
    case 7: return add_picture(writer);
    case 2: return add_picture_talk(writer);
    case 1:
    case 6: return add_tones(writer);
    case 3: return add_pictures(writer, 2);
    case 8: return add_pictures(writer, 3);
    case 5: return add_picture_and_tones(writer);
    default: return add_text(writer);
  }
}

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
  DemoWriter writer(folder, options.seed);
  for (std::int32_t number = 0; number < options.samples; ++number)
    (options.uneven ? add_uneven_sample : add_sample)(writer, number);
  return writer.finish();
}

}  // namespace troupe::data
