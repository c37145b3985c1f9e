#include "runtime/data/measure_sample.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "golden.hpp"
#include "runtime/data/demo_data.hpp"
#include "runtime/data/read_audio.hpp"
#include "temp_folder.hpp"

namespace troupe::data {
namespace {

constexpr MediaModules kModules{ModuleId{1}, ModuleId{0}};

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

}  // namespace
}  // namespace troupe::data
