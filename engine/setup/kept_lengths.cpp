#include "engine/setup/kept_lengths.hpp"

#include <cstdlib>

#include "runtime/data/lengths/length_index.hpp"
#include "runtime/files/look_up.hpp"

namespace troupe::engine {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "lengths";

std::optional<fs::path> cache_folder() {
  const auto named = [](const char* variable) -> fs::path {
    const char* value = std::getenv(variable);
    return value == nullptr ? "" : value;
  };
  if (const auto cache = named("XDG_CACHE_HOME"); cache.is_absolute())
    return cache / "troupe" / kFolder;
  if (const auto home = named("HOME"); home.is_absolute())
    return home / ".cache" / "troupe" / kFolder;
  return std::nullopt;
}

/// What the lists and folders of the job's sources are known by; empty: they are not here.
std::vector<std::string> source_names(const data::DataOptions& options) {
  std::vector<std::string> names;
  for (const auto& source : options.sources)
    names.push_back(source.is_here ? source.json.string() + '\n' + source.media.string() : "");
  return names;
}

}  // namespace

std::optional<fs::path> lengths_folder(const job::Job& job, const fs::path& run_folder) {
  if (job.data.index == job::kIndexOff) return std::nullopt;
  if (job.data.index != job::kIndexAuto) return job.data.index;
  std::error_code unknown;
  const fs::path& run = run_folder.empty() ? job.job.run_dir : run_folder;
  const fs::path beside = fs::absolute(run, unknown).parent_path();
  if (unknown || beside.empty()) return cache_folder();
  if (!run_folder.empty() && !files::is_folder(beside)) return cache_folder();
  return beside / kFolder;
}

void keep_lengths(JobSetup& setup, const fs::path& run_folder) {
  setup.lengths.reset();
  const auto folder = lengths_folder(setup.job, run_folder);
  if (!folder) return;
  data::LengthIndexOptions options;
  options.folder = *folder;
  setup.lengths = std::make_shared<data::LengthIndex>(std::move(options), source_names(setup.data));
}

std::vector<std::string> release_lengths(JobSetup& setup) {
  if (setup.lengths == nullptr) return {};
  setup.lengths->save();
  auto notes = setup.lengths->take_notes();
  setup.lengths.reset();
  return notes;
}

}  // namespace troupe::engine
