#include "runtime/data/reading/read_audio.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <limits>
#include <numbers>

#include "golden.hpp"
#include "temp_folder.hpp"

using Catch::Matchers::ContainsSubstring;

namespace troupe::data {
namespace {

std::string little_endian(std::uint32_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
  return text;
}

/// A WAV file of these sample bytes. `announced`: the size its data chunk claims.
std::string wav(const std::string& samples, std::uint32_t channels, std::uint32_t rate,
                std::uint32_t bits, std::uint32_t format, std::uint32_t announced) {
  const std::uint32_t frame = channels * bits / 8;
  return "RIFF" + little_endian(36 + announced, 4) + "WAVEfmt " + little_endian(16, 4) +
         little_endian(format, 2) + little_endian(channels, 2) + little_endian(rate, 4) +
         little_endian(rate * frame, 4) + little_endian(frame, 2) + little_endian(bits, 2) +
         "data" + little_endian(announced, 4) + samples;
}

std::string pcm16_wav(const std::vector<int>& values, std::uint32_t channels, std::uint32_t rate) {
  std::string samples;
  for (const int value : values) samples += little_endian(static_cast<std::uint32_t>(value), 2);
  return wav(samples, channels, rate, 16, 1, static_cast<std::uint32_t>(samples.size()));
}

std::string reason(std::string_view bytes, std::int32_t seconds_max = 3600) {
  auto clip = decode_audio(bytes, seconds_max);
  return clip.ok() ? "decoded" : clip.error().message;
}

TEST_CASE("decode_audio takes the mean of the channels", "[data]") {
  // Left 16384 / 32768 = 0.5, right -0.25: mean 0.125. Then 1/32768 and 0.
  auto clip = decode_audio(pcm16_wav({16384, -8192, 1, 0}, 2, 16000), 3600);
  REQUIRE(clip.ok());
  CHECK(clip.value() == std::vector<float>{0.125f, 0.5f / 32768});
}

TEST_CASE("decode_audio resamples to 16 kHz without changing a slow tone", "[data]") {
  for (const std::uint32_t rate : {8000u, 11025u, 22050u, 44100u, 48000u}) {
    CAPTURE(rate);
    std::vector<int> values;
    for (std::uint32_t i = 0; i < rate; ++i)
      values.push_back(static_cast<int>(16000 * std::sin(2 * std::numbers::pi * 100 * i / rate)));
    auto clip = decode_audio(pcm16_wav(values, 1, rate), 3600);
    REQUIRE(clip.ok());
    CHECK(std::abs(std::ssize(clip.value()) - 16000) <= 1);
    for (std::size_t i = 4000; i < 4200; ++i)
      CHECK(clip.value()[i] ==
            Catch::Approx(16000 / 32768.0 *
                          std::sin(2 * std::numbers::pi * 100 * static_cast<double>(i) / 16000))
                .margin(2e-4));
  }
}

TEST_CASE("decode_audio calls files that were cut off truncated", "[data][errors]") {
  for (const char* name : {"mono16k.wav", "float16k.wav", "deep24.wav", "stereo44k.wav"}) {
    const std::string bytes = golden_bytes(name);
    CAPTURE(name);
    CHECK_THAT(reason(bytes.substr(0, bytes.size() - 2)), ContainsSubstring("truncated"));
    CHECK_THAT(reason(bytes.substr(0, bytes.size() / 2)), ContainsSubstring("truncated"));
  }
  const std::string flac = golden_bytes("mono.flac");
  CHECK(reason(flac) == "decoded");
  CHECK(reason(flac.substr(0, flac.size() * 2 / 3)) != "decoded");
}

TEST_CASE("decode_audio reads a WAV file that was written into a pipe", "[data]") {
  // Such a writer cannot go back to fill in the size.
  CHECK(reason(wav(std::string(400, '\1'), 1, 16000, 16, 1, 0xFFFFFFFF)) == "decoded");
}

TEST_CASE("decode_audio refuses what is no sound", "[data][errors]") {
  CHECK(reason("") == "the file is empty");
  CHECK_THAT(reason("this is text, not audio"), ContainsSubstring("cannot be decoded"));
  CHECK_THAT(reason(golden_bytes("mono16k.wav").substr(0, 20)),
             ContainsSubstring("cannot be decoded"));
  CHECK_THAT(reason(pcm16_wav({}, 1, 16000)), ContainsSubstring("no samples"));
  CHECK_THAT(reason(pcm16_wav(std::vector<int>(48000), 1, 16000), 2),
             ContainsSubstring("longer than the limit of 2 s"));
  const float strange[] = {0, std::numeric_limits<float>::quiet_NaN()};
  const std::string samples(reinterpret_cast<const char*>(strange), sizeof strange);
  CHECK_THAT(reason(wav(samples, 1, 16000, 32, 3, sizeof strange)),
             ContainsSubstring("not finite"));
}

TEST_CASE("decode_audio refuses rates that no recording has", "[data][errors]") {
  for (const std::uint32_t rate : {0u, 1u, 999u, 768001u, 0xFFFFFFFFu}) {
    CAPTURE(rate);
    CHECK(reason(pcm16_wav(std::vector<int>(4000, 1), 1, rate)) != "decoded");
  }
  CHECK_THAT(reason(pcm16_wav(std::vector<int>(4000, 1), 1, 999)),
             ContainsSubstring("claims 999 Hz"));
  CHECK(reason(pcm16_wav(std::vector<int>(4000, 1), 1, 1000)) == "decoded");
  CHECK(reason(pcm16_wav(std::vector<int>(4000, 1), 1, 768000)) == "decoded");
}

TEST_CASE("decode_audio survives damage at every byte of the header", "[data][property]") {
  const std::string whole = golden_bytes("shortest.wav");
  for (std::size_t at = 0; at < 80; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0xFF);
    CHECK_FALSE(reason(damaged, 60).empty());
  }
}

TEST_CASE("a large file that can be no clip is refused before it is read", "[data][errors]") {
  const TempFolder folder;
  const auto large = [&](const std::string& name, std::string_view head) {
    const auto path = folder.write(name, head);
    std::filesystem::resize_file(path, std::uintmax_t{2} << 40);  // More than memory can hold.
    return read_audio(path, 3600).error();
  };
  CHECK_THAT(large("film", "ftypmp42").message, ContainsSubstring("cannot be decoded"));
  // As a program writes it into a pipe: as long as the file is.
  const auto endless = large("endless.wav", wav("", 1, 16000, 16, 1, 0xFFFFFFFF));
  CHECK_THAT(endless.message, ContainsSubstring("longer than the limit of 3600 s"));
}

TEST_CASE("read_audio names a file that is missing", "[data][errors]") {
  TempFolder folder;
  CHECK(read_audio(folder.path() / "none.wav", 3600).error().code == Errc::not_found);
}

}  // namespace
}  // namespace troupe::data
