// Measures how fast one thread decodes pictures and clips; prints one JSON object per line.
//
//   data_bench [FOLDER]    FOLDER: holds samples.json, images/ and audio/ (default: real-mini
//   beside
//                          the repository; where that is absent, a demo data set made for the run)
//
// Peers: Pillow, and libsndfile with soxr, in data_peer.py on the same files; libsndfile alone
// here, which reads the same clips without mean, resampling or features.

#include <sndfile.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/data/made/demo_data.hpp"
#include "runtime/data/reading/log_mel.hpp"
#include "runtime/data/reading/read_audio.hpp"
#include "runtime/data/reading/read_image.hpp"
#include "runtime/data/samples/data_summary.hpp"
#include "tests/bench/report.hpp"

namespace {

using namespace troupe::data;
using Paths = std::vector<std::filesystem::path>;

constexpr std::int64_t kPixelsMax = 1 << 28;

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "data_bench: %s\n", why.c_str());
  std::exit(1);
}

/// Files per second of processor time, which other load on the machine hardly changes: the median
/// of three passes over all files, after one that warms the cache.
void measure(const std::string& name, const Paths& files,
             const std::function<bool(const std::filesystem::path&)>& work) {
  if (files.empty()) return;
  std::vector<double> seconds;
  for (int pass = 0; pass < 4; ++pass) {
    const std::clock_t start = std::clock();
    for (const auto& file : files)
      if (!work(file)) fail("cannot decode " + file.string());
    if (pass > 0) seconds.push_back(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  troupe::bench::report(name, static_cast<double>(files.size()) / troupe::bench::median(seconds),
                        "files/s");
}

Paths files_in(const std::filesystem::path& folder) {
  Paths files;
  if (std::filesystem::is_directory(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

bool prepare(const std::filesystem::path& path, std::int64_t max_pixels) {
  DataOptions options;
  options.max_pixels = max_pixels;
  auto image = read_image(path, kPixelsMax);
  return image.ok() && prepare_image(image.value(), options, options.vision[0].input).ok();
}

bool read_with_libsndfile(const std::filesystem::path& path) {
  SF_INFO info{};
  SNDFILE* file = sf_open(path.c_str(), SFM_READ, &info);
  if (file == nullptr) return false;
  std::vector<float> samples(static_cast<std::size_t>(info.frames * info.channels));
  const bool is_whole = sf_readf_float(file, samples.data(), info.frames) == info.frames;
  sf_close(file);
  return is_whole;
}

void measure_samples(const std::filesystem::path& folder) {
  DataOptions options;
  options.sources = {{folder / "samples.json", folder, "llava"}};
  options.max_pixels = 25088;
  auto dataset = Dataset::open(options);
  if (!dataset) fail(to_string(dataset.error()));
  const std::clock_t start = std::clock();
  const auto summary = summarize(dataset.value(), options, 1);
  const double elapsed_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  troupe::bench::report("data.samples_25088_pixels",
                        static_cast<double>(summary.samples) / elapsed_s, "samples/s");
}

}  // namespace

int main(int argc, char** argv) {
  std::filesystem::path folder = argc > 1 ? argv[1] : "../shared/data/real-mini";
  const auto made = std::filesystem::temp_directory_path() / "troupe-data-bench";
  if (!std::filesystem::exists(folder / "samples.json")) {
    if (argc > 1) fail("no samples.json in " + folder.string());
    std::fprintf(stderr, "data_bench: no %s; measuring the demo's data\n", folder.c_str());
    if (auto demo = make_demo_data(made, {}); !demo) fail(to_string(demo.error()));
    folder = made;
  }

  const Paths images = files_in(folder / "images"), clips = files_in(folder / "audio");
  measure("data.image_decode", images,
          [](const auto& path) { return read_image(path, kPixelsMax).ok(); });
  measure("data.image_to_patches", images, [](const auto& path) { return prepare(path, 1003520); });
  measure("data.image_to_patches_25088_pixels", images,
          [](const auto& path) { return prepare(path, 25088); });
  measure("data.audio_decode", clips, [](const auto& path) { return read_audio(path, 3600).ok(); });
  measure("data.audio_libsndfile_alone", clips, read_with_libsndfile);
  measure("data.audio_to_features", clips, [](const auto& path) {
    auto clip = read_audio(path, 3600);
    return clip.ok() && log_mel_windows(clip.value(), 80, false).ok();
  });
  measure_samples(folder);
  std::error_code ignored;
  std::filesystem::remove_all(made, ignored);
  return 0;
}
