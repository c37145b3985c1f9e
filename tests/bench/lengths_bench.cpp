// Measures how long a job takes to have the lengths of all samples of an epoch: from the files, and
// by way of an index that is empty or full. Prints one JSON object per line.
//
//   lengths_bench [FOLDER [SAMPLES]]   FOLDER: holds samples.json, images/ and audio/ (default:
//                                      real-mini beside the repository; where that is absent, a
//                                      demo data set made for the run). SAMPLES (default 100,000):
//                                      of the set that is made of links to its media, each with a
//                                      path of its own: three of ten with a picture, two with a
//                                      clip, one with both, the rest with text alone, of 200 to
//                                      1,200 bytes.
//
// Processor time of one thread, which other load hardly changes; files are in the page cache, where
// a header costs least: on a network file system the index saves a round trip or more per file.
// Opening an index and saving it are part of the times.

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "runtime/data/made/demo_data.hpp"
#include "runtime/data/samples/measure_sample.hpp"
#include "runtime/data/samples/sample_lengths.hpp"
#include "tests/bench/report.hpp"

namespace {

using namespace troupe;
using namespace troupe::data;
namespace fs = std::filesystem;

const MediaModules kModules{{ModuleId{1}}, {ModuleId{0}}};

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "lengths_bench: %s\n", why.c_str());
  std::exit(1);
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  if (fs::is_directory(folder))
    for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

DataOptions options_for(const fs::path& folder) {
  DataOptions options;
  options.sources = {{folder / "samples.json", folder, "llava"}};
  options.max_pixels = 25088;
  return options;
}

/// A large set below `folder`: links, so that it takes seconds and no room.
void make_large(const fs::path& from, const fs::path& folder, std::int64_t samples) {
  const auto pictures = files_in(from / "images"), clips = files_in(from / "audio");
  if (pictures.empty() || clips.empty()) fail("no media in " + from.string());
  fs::create_directories(folder / "images");
  fs::create_directories(folder / "audio");
  std::ofstream list(folder / "samples.json");
  const auto link = [&](const std::vector<fs::path>& files, const char* kind, std::int64_t sample) {
    const fs::path& file = files[static_cast<std::size_t>(sample) % files.size()];
    const fs::path name = fs::path(kind) / (std::to_string(sample) + file.extension().string());
    fs::create_hard_link(file, folder / name);
    return name.string();
  };
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const std::int64_t kind = sample % 10;
    const bool has_picture = kind < 3 || kind == 5, has_clip = kind == 3 || kind == 4 || kind == 5;
    nlohmann::json record{{"id", "s" + std::to_string(sample)}};
    if (has_picture) record["image"] = link(pictures, "images", sample);
    if (has_clip) record["audio"] = link(clips, "audio", sample);
    const std::string markers =
        std::string(has_picture ? "<image>" : "") + (has_clip ? "<audio>" : "");
    const auto bytes = static_cast<std::size_t>(200 + sample * 7919 % 1000);
    record["conversations"] = {
        {{"from", "human"}, {"value", markers + "sample " + std::to_string(sample)}},
        {{"from", "gpt"}, {"value", std::string(bytes, 'a')}}};
    list << record.dump() << '\n';
  }
}

struct Look {
  double seconds = 0;
  std::int64_t indexed = 0;
  std::vector<MeasureOutcome> outcomes;
};

/// All lengths, in the order of the list. `folder`: of an index; empty: none.
Look look(const Dataset& dataset, const DataOptions& options, const fs::path& folder) {
  Look found;
  const std::clock_t begin = std::clock();
  std::unique_ptr<LengthIndex> index;
  if (!folder.empty()) {
    LengthIndexOptions kept;
    kept.folder = folder;
    index = std::make_unique<LengthIndex>(kept, std::vector<std::string>{"bench"});
  }
  for (const auto& record : dataset.records()) {
    SampleLengths lengths(index.get(), record.source);
    found.outcomes.push_back(measure_sample(dataset, record, options, kModules, lengths));
    if (lengths.was_indexed()) ++found.indexed;
  }
  if (index != nullptr && !index->take_notes().empty()) fail("the index is not what it should be");
  if (index != nullptr) index->save();
  found.seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return found;
}

void measure(const std::string& name, const fs::path& folder, const fs::path& scratch) {
  const DataOptions options = options_for(folder);
  const auto dataset = Dataset::open(options);
  if (!dataset.ok()) fail(to_string(dataset.error()));
  constexpr int kPasses = 3;
  std::vector<double> files, cold, warm;
  std::uintmax_t bytes = 0;
  for (int pass = 0; pass <= kPasses; ++pass) {  // The first one brings the files into memory.
    const fs::path index = scratch / (name + std::to_string(pass));
    const Look from_files = look(dataset.value(), options, {});
    const Look first = look(dataset.value(), options, index);
    const Look second = look(dataset.value(), options, index);
    if (first.outcomes != from_files.outcomes || second.outcomes != from_files.outcomes)
      fail("an index changes lengths");
    if (second.indexed != dataset.value().size()) fail("not all lengths came from the index");
    bytes = 0;
    for (const auto& file : files_in(index)) bytes += fs::file_size(file);
    if (pass == 0) continue;
    files.push_back(from_files.seconds);
    cold.push_back(first.seconds);
    warm.push_back(second.seconds);
  }
  const nlohmann::json size{{"size", std::to_string(dataset.value().size()) + " samples"}};
  bench::report("data.lengths_" + name + "_files", 1e3 * bench::median(files), "ms", size);
  bench::report("data.lengths_" + name + "_empty_index", 1e3 * bench::median(cold), "ms", size);
  bench::report("data.lengths_" + name + "_full_index", 1e3 * bench::median(warm), "ms", size);
  bench::report("data.lengths_" + name + "_index_bytes", static_cast<double>(bytes), "B", size);
}

}  // namespace

int main(int argc, char** argv) {
  fs::path folder = argc > 1 ? argv[1] : "../shared/data/real-mini";
  const std::int64_t samples = argc > 2 ? std::atoll(argv[2]) : 100'000;
  if (samples < 1) fail("SAMPLES is no number above 0");
  std::string pattern = (fs::temp_directory_path() / "troupe-lengths-bench-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) fail("cannot make a folder below the temporary one");
  const fs::path scratch = pattern;
  if (!fs::exists(folder / "samples.json")) {
    if (argc > 1) fail("no samples.json in " + folder.string());
    std::fprintf(stderr, "lengths_bench: no %s; measuring the demo's data\n", folder.c_str());
    if (auto demo = make_demo_data(scratch / "demo", {}); !demo.ok()) fail(to_string(demo.error()));
    folder = scratch / "demo";
  }
  fs::create_directories(scratch / "media");
  // Copied, so that links are possible; also what must settle before it is kept.
  for (const char* kind : {"images", "audio"})
    fs::copy(folder / kind, scratch / "media" / kind, fs::copy_options::recursive);
  make_large(scratch / "media", scratch / "large", samples);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  measure("given", folder, scratch / "indexes");
  measure("large", scratch / "large", scratch / "indexes");
  std::error_code ignored;
  fs::remove_all(scratch, ignored);
  return 0;
}
