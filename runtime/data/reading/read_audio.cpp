#include "runtime/data/reading/read_audio.hpp"

#include <sndfile.h>
#include <soxr.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "runtime/data/reading/read_file.hpp"
#include "runtime/files/file_reads.hpp"

namespace troupe::data {
namespace {

constexpr int kRateMin = 1000;
constexpr int kRateMax = 768000;

Error bad(std::string message) { return {Errc::bad_data, std::move(message), "", ""}; }

Status check_length(const SF_INFO& info, std::int32_t seconds_max) {
  if (info.frames / info.samplerate <= seconds_max) return Done{};
  return bad("the audio file is longer than the limit of " + std::to_string(seconds_max) + " s");
}

/// Bytes in memory as libsndfile reads them.
struct MemoryFile {
  std::string_view bytes;
  sf_count_t at = 0;

  static MemoryFile& of(void* self) { return *static_cast<MemoryFile*>(self); }
  static sf_count_t size(void* self) { return std::ssize(of(self).bytes); }
  static sf_count_t tell(void* self) { return of(self).at; }
  static sf_count_t seek(sf_count_t offset, int whence, void* self) {
    const sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? of(self).at : size(self);
    return of(self).at = std::clamp<sf_count_t>(base + offset, 0, size(self));
  }
  static sf_count_t read(void* out, sf_count_t count, void* self) {
    count = std::clamp<sf_count_t>(count, 0, size(self) - of(self).at);
    std::memcpy(out, of(self).bytes.data() + of(self).at, static_cast<std::size_t>(count));
    of(self).at += count;
    return count;
  }
  static sf_count_t write(const void*, sf_count_t, void*) { return 0; }
};

std::uint32_t little_endian(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

// libsndfile shortens a truncated WAV file silently to what is there, so the announced size is
// compared here. Sizes near the largest are what programs write into a pipe: unknown.
Status check_wav_size(std::string_view bytes) {
  constexpr std::uint32_t kUnknown = 0x7FFFF000;
  if (!bytes.starts_with("RIFF")) return Done{};
  for (std::size_t at = 12; at + 8 <= bytes.size();) {
    const std::uint32_t size = little_endian(bytes, at + 4);
    const std::size_t there = bytes.size() - at - 8;
    if (bytes.substr(at, 4) == "data") {
      if (size <= there || size >= kUnknown) return Done{};
      return bad("the WAV file is truncated: " + std::to_string(there) + " of " +
                 std::to_string(size) + " bytes of samples are there");
    }
    at += 8 + std::size_t{size} + size % 2;
  }
  return Done{};  // Without samples; libsndfile says so.
}

/// All frames as the mean over channels.
Result<std::vector<float>> read_mono(SNDFILE* file, const SF_INFO& info) {
  constexpr sf_count_t kBlock = 16384;
  const auto channels = static_cast<std::size_t>(info.channels);
  std::vector<float> mono, block(static_cast<std::size_t>(kBlock) * channels);
  // Not reserved from info.frames: a damaged header may announce any number.
  while (const sf_count_t frames = sf_readf_float(file, block.data(), kBlock)) {
    const float* sample = block.data();
    mono.resize(mono.size() + static_cast<std::size_t>(frames));
    for (auto to = mono.end() - frames; to != mono.end(); ++to) {
      float sum = 0;
      for (std::size_t channel = 0; channel < channels; ++channel) sum += *sample++;
      *to = sum / static_cast<float>(channels);
    }
  }
  if (sf_error(file) != SF_ERR_NO_ERROR)
    return bad(std::string("the audio file cannot be decoded: ") + sf_strerror(file));
  if (std::ssize(mono) < info.frames)
    return bad("the audio file is truncated: " + std::to_string(mono.size()) + " of " +
               std::to_string(info.frames) + " samples are there");
  if (!std::all_of(mono.begin(), mono.end(), [](float x) { return std::isfinite(x); }))
    return bad("the audio file holds samples that are not finite numbers");
  return mono;
}

Result<std::vector<float>> resample(std::vector<float> samples, int rate) {
  if (rate == kSampleRate) return samples;
  const double ratio = static_cast<double>(kSampleRate) / rate;
  std::vector<float> out(static_cast<std::size_t>(static_cast<double>(samples.size()) * ratio) + 2);
  const soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  const soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
  std::size_t written = 0;
  if (const char* fault =
          soxr_oneshot(rate, kSampleRate, 1, samples.data(), samples.size(), nullptr, out.data(),
                       out.size(), &written, &io, &quality, &runtime))
    return bad("cannot resample from " + std::to_string(rate) + " Hz: " + fault);
  out.resize(written);
  return out;
}

}  // namespace

Result<std::vector<float>> decode_audio(std::string_view bytes, std::int32_t seconds_max) {
  if (bytes.empty()) return bad("the file is empty");
  if (Status fine = check_wav_size(bytes); !fine) return fine.error();

  MemoryFile memory{bytes};
  SF_VIRTUAL_IO access{&MemoryFile::size, &MemoryFile::seek, &MemoryFile::read, &MemoryFile::write,
                       &MemoryFile::tell};
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> file(
      sf_open_virtual(&access, SFM_READ, &info, &memory), &sf_close);
  if (!file) return bad(std::string("the audio file cannot be decoded: ") + sf_strerror(nullptr));
  // Damaged headers claim anything; far from real rates a resampler takes gigabytes.
  if (info.samplerate < kRateMin || info.samplerate > kRateMax)
    return bad("the audio file claims " + std::to_string(info.samplerate) + " Hz, outside " +
               std::to_string(kRateMin) + ".." + std::to_string(kRateMax));
  if (auto fine = check_length(info, seconds_max); !fine) return fine.error();
  auto mono = read_mono(file.get(), info);
  if (!mono) return mono;
  if (mono.value().empty()) return bad("the audio file holds no samples");
  return resample(std::move(mono).value(), info.samplerate);
}

Result<std::int64_t> audio_samples(const std::filesystem::path& path, std::int32_t seconds_max) {
  const files::ReadingFile reading(path);
  if (!std::filesystem::exists(path))
    return Error{Errc::not_found, "there is no such file", "", ""};
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> file(sf_open(path.c_str(), SFM_READ, &info),
                                                         &sf_close);
  if (!file) return bad(std::string("the audio file cannot be decoded: ") + sf_strerror(nullptr));
  if (info.samplerate < 1 || info.frames < 1) return bad("the audio file holds no samples");
  if (auto fine = check_length(info, seconds_max); !fine) return fine.error();
  return std::llround(static_cast<double>(info.frames) * kSampleRate / info.samplerate);
}

Result<std::vector<float>> read_audio(const std::filesystem::path& path, std::int32_t seconds_max) {
  // Of a file that is worth it the header is asked first: opening it twice costs less than reading.
  constexpr std::uintmax_t kLargeBytes = 16 << 20;
  auto bytes = read_file(path, [&](std::string_view, std::uintmax_t size) -> Status {
    if (size <= kLargeBytes) return Done{};
    const auto announced = audio_samples(path, seconds_max);
    return announced.ok() ? Status(Done{}) : Status(announced.error());
  });
  if (!bytes) return bytes.error();
  return decode_audio(bytes.value(), seconds_max);
}

}  // namespace troupe::data
