#include "runtime/data/samples/measure_sample.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "golden.hpp"
#include "runtime/data/made/demo_data.hpp"
#include "runtime/data/reading/read_audio.hpp"
#include "runtime/data/reading/read_image.hpp"
#include "temp_folder.hpp"

namespace troupe::data {
namespace {

const MediaModules kModules{{ModuleId{1}}, {ModuleId{0}}};

/// Both ways to learn a record's lengths.
void check_agrees(const Dataset& dataset, const DataOptions& options) {
  REQUIRE(dataset.size() > 0);
  for (const auto& record : dataset.records()) {
    CAPTURE(record.id);
    const auto measured = measure_sample(dataset, record, options, kModules);
    auto decoded = decode_sample(dataset, record, options);
    REQUIRE((measured.index() == decoded.index()));
    if (const auto* bad = std::get_if<BadSample>(&decoded)) {
      CHECK((std::get<BadSample>(measured).kind == bad->kind));
      continue;
    }
    CHECK((std::get<SampleShape>(measured) ==
           shape_of(std::get<DecodedSample>(decoded), options, kModules)));
  }
}

TEST_CASE("headers tell the lengths that decoding finds", "[data][property]") {
  // Pictures in both formats, clips from 8 to 44.1 kHz; padded and not, a limit that some exceed.
  const TempFolder folder;
  const bool uneven = GENERATE(false, true);
  const auto made = make_demo_data(folder.path(), {.samples = 64, .seed = 7, .uneven = uneven});
  REQUIRE(made.ok());
  DataOptions options;
  options.sources = {{made.value().json, {}, "llava"}};
  options.pad_audio = GENERATE(false, true);
  options.max_pixels = GENERATE(6272, 1003520);
  options.max_seq_len = GENERATE(0, 100);
  check_agrees(Dataset::open(options).value(), options);
}

TEST_CASE("headers tell the one length of pictures in squares", "[data]") {
  const TempFolder folder;
  const auto made = make_demo_data(folder.path(), {.samples = 32, .seed = 3, .uneven = true});
  REQUIRE(made.ok());
  DataOptions options;
  options.sources = {{made.value().json, {}, "llava"}};
  options.max_pixels = 6272;  // Not for squares: 70 x 70 is less, 140 x 140 more.
  options.vision[0].input.merge_size = 1;
  options.vision[0].input.resize = {GENERATE(ResizeMode::stretch, ResizeMode::crop),
                                    GENERATE(75, 140)};
  const std::int32_t along = options.vision[0].input.resize.side / 14;
  const auto dataset = Dataset::open(options).value();
  check_agrees(dataset, options);
  int pictures = 0;
  for (const auto& record : dataset.records()) {
    const auto measured = measure_sample(dataset, record, options, kModules);
    if (const auto* shape = std::get_if<SampleShape>(&measured))
      for (const auto& media : shape->media)
        for (const auto& item : media.items)
          if (media.module == kModules.vision[0]) {
            CHECK(item.output_rows == along * along);
            ++pictures;
          }
  }
  CHECK(pictures > 0);
}

TEST_CASE("headers tell the lengths of the real data", "[data][real]") {
  if (!std::filesystem::exists(real_mini() / "samples.json")) SKIP("no " + real_mini().string());
  DataOptions options;
  options.sources = {{real_mini() / "samples.json", real_mini(), "llava"}};
  options.max_pixels = 25088;
  const auto dataset = Dataset::open(options).value();
  std::int32_t items = 0;
  for (std::int64_t index = 0; index < dataset.size(); index += 5) {
    const auto measured = measure_sample(dataset, dataset[index], options, kModules);
    auto decoded = decode_sample(dataset, dataset[index], options);
    REQUIRE(std::holds_alternative<SampleShape>(measured));
    CHECK((std::get<SampleShape>(measured) ==
           shape_of(std::get<DecodedSample>(decoded), options, kModules)));
    items += static_cast<std::int32_t>(std::get<SampleShape>(measured).media.size());
  }
  CHECK(items > 0);
}

TEST_CASE("media that announce nothing usable are bad", "[data][errors]") {
  const TempFolder folder;
  const auto pixels_max = DataOptions{}.decoded_pixels_max;
  CHECK(image_size(folder.path() / "none.png", pixels_max).error().code == Errc::not_found);
  CHECK(image_size(folder.write("a.png", "text"), pixels_max).error().code == Errc::bad_data);
  CHECK(image_size(folder.write("b.jpg", "\xFF\xD8 no more"), pixels_max).error().code ==
        Errc::bad_data);
  CHECK(image_size(folder.write("c.png", "\x89PNG\r\n\x1A\n1234"), pixels_max).error().code ==
        Errc::bad_data);
  CHECK(image_size(golden_path("rgb.jpg"), 100).error().code == Errc::bad_data);
  CHECK(audio_samples(folder.path() / "none.wav", 10).error().code == Errc::not_found);
  CHECK(audio_samples(folder.write("a.wav", "RIFF"), 10).error().code == Errc::bad_data);
}

TEST_CASE("what stands before a picture's size may be long", "[data]") {
  const TempFolder folder;
  const auto pixels_max = DataOptions{}.decoded_pixels_max;
  const std::string jpeg = golden_bytes("rgb.jpg");
  const auto plain = image_size(golden_path("rgb.jpg"), pixels_max).value();
  std::string comments;  // Of 65,535 bytes each, as long as they may be.
  for (int i = 0; i < 3; ++i) comments += "\xFF\xFE\xFF\xFF" + std::string(65533, 'c');
  const auto path = folder.write("long.jpg", jpeg.substr(0, 2) + comments + jpeg.substr(2));
  const auto size = image_size(path, pixels_max);
  REQUIRE(size.ok());
  CHECK(size.value().width == plain.width);
  CHECK(size.value().height == plain.height);
}

TEST_CASE("media that can be decoded can be measured, whatever happened to them",
          "[data][property]") {
  // Else a sample would be dropped by its header that a reader of whole files trains.
  const TempFolder folder;
  int decoded = 0;
  const auto check = [&](const std::string& name, const std::string& bytes) {
    const auto path = folder.write(name, bytes);
    if (name.ends_with(".wav") || name.ends_with(".flac")) {
      const auto samples = decode_audio(bytes, 60);
      if (!samples.ok()) return;
      const auto announced = audio_samples(path, 60);
      REQUIRE(announced.ok());
      CHECK(std::abs(announced.value() - std::ssize(samples.value())) <= 1);
    } else {
      const auto image = decode_image(bytes, 1 << 14);
      if (!image.ok()) return;
      const auto size = image_size(path, 1 << 14);
      REQUIRE(size.ok());
      CHECK(size.value().width == image.value().width);
      CHECK(size.value().height == image.value().height);
    }
    ++decoded;
  };
  for (const std::string name : {"rgb.jpg", "progressive.jpg", "cmyk.jpg", "palette.png",
                                 "mono8k.wav", "deep24.wav", "mulaw.wav", "mono.flac"}) {
    const std::string whole = golden_bytes(name);
    CAPTURE(name);
    for (std::size_t at = 0; at < std::min<std::size_t>(whole.size(), 700); ++at)
      for (const int mask : {0xFF, 0x11, 0x80}) {
        CAPTURE(at, mask);
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ mask);
        check(name, damaged);
      }
    for (std::size_t size = 0; size < whole.size(); size += 1 + whole.size() / 97)
      check(name, whole.substr(0, size));
  }
  CHECK(decoded > 1000);
}

}  // namespace
}  // namespace troupe::data
