#include "runtime/data/reading/read_image.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "golden.hpp"
#include "runtime/data/samples/measure_sample.hpp"
#include "temp_folder.hpp"

using Catch::Matchers::ContainsSubstring;

namespace troupe::data {
namespace {

constexpr std::int64_t kAnySize = 1 << 20;

std::string reason(std::string_view bytes, std::int64_t pixels_max = kAnySize) {
  auto image = decode_image(bytes, pixels_max);
  return image.ok() ? "decoded" : image.error().message;
}

TEST_CASE("decode_image gives Pillow's bytes for every kind of JPEG and PNG", "[data]") {
  for (const auto& entry : golden_cases()["decode"]) {
    const std::string name = entry["file"];
    CAPTURE(name);
    auto image = read_image(golden_path(name), kAnySize);
    REQUIRE(image.ok());
    CHECK(image.value().width == entry["width"].get<int>());
    CHECK(image.value().height == entry["height"].get<int>());
    CHECK(image.value().rgb == golden_pixels(name + ".rgb"));
  }
}

TEST_CASE("decode_image calls every file that was cut off truncated", "[data][errors]") {
  for (const char* name : {"rgb.jpg", "progressive.jpg", "cmyk.jpg"}) {
    const std::string bytes = golden_bytes(name);
    for (const std::size_t size : {bytes.size() - 1, bytes.size() - 2, bytes.size() - 60,
                                   bytes.size() / 2, std::size_t{25}, std::size_t{3}}) {
      CAPTURE(name, size);
      CHECK_THAT(reason(bytes.substr(0, size)), ContainsSubstring("truncated"));
    }
  }
  for (const char* name : {"rgba.png", "palette.png", "interlaced.png"}) {
    const std::string bytes = golden_bytes(name);
    for (const std::size_t size : {bytes.size() - 1, bytes.size() - 12, bytes.size() - 40,
                                   bytes.size() / 2, std::size_t{20}}) {
      CAPTURE(name, size);
      CHECK_THAT(reason(bytes.substr(0, size)), ContainsSubstring("truncated"));
    }
  }
}

TEST_CASE("decode_image survives damage at every byte", "[data][property]") {
  // Whatever a byte becomes, the answer is a picture or a reason, never a crash.
  for (const char* name : {"cmyk.jpg", "progressive.jpg", "palette_alpha.png", "grey16.png"}) {
    const std::string whole = golden_bytes(name);
    for (std::size_t at = 0; at < whole.size(); ++at) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (at % 2 == 0 ? 0xFF : 0x11));
      auto image = decode_image(damaged, 1 << 14);
      if (image.ok())
        CHECK(static_cast<std::int64_t>(image.value().rgb.size()) ==
              std::int64_t{3} * image.value().width * image.value().height);
      else
        CHECK_FALSE(image.error().message.empty());
    }
  }
}

TEST_CASE("decode_image accepts what follows the end of a JPEG", "[data]") {
  const std::string bytes = golden_bytes("rgb.jpg");
  CHECK(reason(bytes + "trailing") == "decoded");
}

TEST_CASE("decode_image refuses what is no picture", "[data][errors]") {
  CHECK(reason("") == "the file is empty");
  CHECK_THAT(reason("GIF89a....."), ContainsSubstring("neither JPEG nor PNG"));
  CHECK_THAT(reason("\xFF\xD8\xFF\xD9"), ContainsSubstring("no picture"));
  CHECK_THAT(reason(std::string("\xFF\xD8\xFF\xE0\x00\x01\xFF\xD9", 8)),
             ContainsSubstring("no length"));
}

TEST_CASE("decode_image refuses too many pixels before decoding", "[data][errors]") {
  CHECK(reason(golden_bytes("rgb.jpg"), 45 * 37) == "decoded");
  CHECK_THAT(reason(golden_bytes("rgb.jpg"), 45 * 37 - 1), ContainsSubstring("45 x 37 pixels"));
  CHECK_THAT(reason(golden_bytes("rgb.png"), 45 * 37 - 1), ContainsSubstring("limit of 1664"));
  // A bomb: the header claims 60,000 x 60,000 (10.8 GB of pixels); the data is that of 45 x 37.
  std::string bomb = golden_bytes("rgb.jpg");
  const auto frame = bomb.find("\xFF\xC0");
  bomb.replace(frame + 5, 4, "\xEA\x60\xEA\x60");
  CHECK_THAT(reason(bomb, 178956970), ContainsSubstring("60000 x 60000"));
}

TEST_CASE("decode_image refuses a picture without height", "[data][errors]") {
  std::string flat = golden_bytes("rgb.jpg");
  flat.replace(flat.find("\xFF\xC0") + 5, 2, std::string(2, '\0'));
  CHECK_THAT(reason(flat), ContainsSubstring("empty: 45 x 0"));
}

TEST_CASE("a file that can be no picture is refused before it is read", "[data][errors]") {
  const TempFolder folder;
  const auto large = [&](const std::string& name, std::string_view head) {
    const auto path = folder.write(name, head);
    std::filesystem::resize_file(path, std::uintmax_t{5} << 30);  // Takes no room on the disk.
    return path;
  };
  const auto reason_of = [](const std::filesystem::path& path) {
    return read_image_file(path, 1000).error().message;
  };
  CHECK_THAT(reason_of(large("film", "ftypmp42")), ContainsSubstring("neither JPEG nor PNG"));
  for (const auto* head : {"\xFF\xD8\xFF\xE0", "\x89PNG\r\n\x1A\n"})
    CHECK_THAT(reason_of(large("picture", head)),
               ContainsSubstring("5368709120 bytes, more than any picture of 1000 pixels"));
  CHECK(image_size(large("sized", "\xFF\xD8"), 1000).error().code == Errc::bad_data);
}

TEST_CASE("read_image names a file that is missing or a folder", "[data][errors]") {
  TempFolder folder;
  auto missing = read_image(folder.path() / "none.jpg", kAnySize);
  CHECK(missing.error().code == Errc::not_found);
  CHECK_THAT(missing.error().message, ContainsSubstring("none.jpg"));
  CHECK(read_image(folder.path(), kAnySize).error().code == Errc::io_failed);
  folder.write("file", "x");
  CHECK(read_image(folder.path() / "file/below.jpg", kAnySize).error().code == Errc::not_found);
}

}  // namespace
}  // namespace troupe::data
