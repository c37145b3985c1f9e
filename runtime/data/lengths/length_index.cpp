#include "runtime/data/lengths/length_index.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <system_error>
#include <utility>

#include "runtime/data/lengths/source_index.hpp"
#include "runtime/files/file_reads.hpp"

namespace troupe::data {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kFirstInterval{10}, kIntervalMax{120}, kLookAgain{1};

/// What files of a source begin with: short, and the same for every job that names it.
std::string file_name(const std::string& source) {
  KeyText text("source");
  text.add(source);
  const auto key = text.key();
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string name;
  for (const unsigned char byte : key.value_or(LengthKey{})) {
    name += kHex[byte >> 4];
    name += kHex[byte & 15];
  }
  return name;
}

/// Memory that is not there costs lengths, never the job.
template <class Work>
void unless_it_throws(std::vector<std::string>& notes, const Work& work) {
  try {
    work();
  } catch (const std::exception& fault) {
    notes.push_back(std::string("the index of lengths is left as it is: ") + fault.what());
  }
}

}  // namespace

LengthIndex::LengthIndex(LengthIndexOptions options, std::span<const std::string> names)
    : options_(std::move(options)), interval_(kFirstInterval) {
  for (const std::string& name : names)
    sources_.push_back(name.empty()
                           ? nullptr
                           : std::make_unique<SourceIndex>(options_.folder, file_name(name),
                                                           options_.source_bytes_max));
  const std::lock_guard lock(saving_);
  saved_ = Clock::now();
  refresh_all();
}

LengthIndex::~LengthIndex() = default;

std::optional<std::vector<std::int64_t>> LengthIndex::find(std::int32_t source,
                                                           const LengthKey& key) const {
  const auto& index = sources_[static_cast<std::size_t>(source)];
  if (index == nullptr) return std::nullopt;
  if (const auto value = index->find(key)) return unpack(*value);
  ++missed_;
  return std::nullopt;
}

void LengthIndex::put(std::int32_t source, const LengthKey& key,
                      std::span<const std::int64_t> numbers) {
  const auto& index = sources_[static_cast<std::size_t>(source)];
  if (index != nullptr) index->put(key, pack(numbers));
}

void LengthIndex::correct(std::int32_t source, const LengthKey& key,
                          std::span<const std::int64_t> numbers, const std::string& what) {
  put(source, key, numbers);
  const std::lock_guard lock(telling_);
  if (!std::exchange(told_corrected_, true))
    notes_.push_back(
        "a length in the index was wrong and is corrected, as any further one will be: " + what);
}

void LengthIndex::tell(std::vector<std::string> notes) {
  const std::lock_guard lock(telling_);
  for (auto& note : notes) notes_.push_back(std::move(note));
}

std::vector<std::string> LengthIndex::take_notes() {
  const std::lock_guard lock(telling_);
  return std::exchange(notes_, {});
}

void LengthIndex::refresh_all() {
  refreshed_ = Clock::now();
  missed_ = 0;
  std::vector<std::string> notes;
  for (const auto& source : sources_)
    if (source != nullptr) unless_it_throws(notes, [&] { source->refresh(notes); });
  tell(std::move(notes));
}

void LengthIndex::save_all() {
  saved_ = refreshed_ = Clock::now();
  missed_ = 0;
  std::vector<std::string> notes;
  bool has_written = false;
  const auto save = [&](SourceIndex& source) {
    auto wrote = source.save(notes);
    if (wrote.ok()) {
      has_written = has_written || wrote.value();
      return;
    }
    const std::lock_guard lock(telling_);
    if (!std::exchange(told_unwritten_, true))
      notes.push_back("lengths of samples are not kept: " + wrote.error().message +
                      "; name a folder that can be written in data.index, or set it to off");
  };
  for (const auto& source : sources_)
    if (source != nullptr) unless_it_throws(notes, [&] { save(*source); });
  if (has_written) unless_it_throws(notes, [&] { trim(); });
  tell(std::move(notes));
}

void LengthIndex::save() {
  const std::lock_guard lock(saving_);
  save_all();
}

void LengthIndex::maintain() {
  const std::unique_lock lock(saving_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const auto now = Clock::now();
  const bool has_unsaved = std::any_of(sources_.begin(), sources_.end(), [](const auto& source) {
    return source != nullptr && source->has_unsaved();
  });
  if (has_unsaved && now - saved_ >= interval_) {
    interval_ = std::min(2 * interval_, kIntervalMax);
    save_all();
  } else if (missed_ > 0 && now - refreshed_ >= kLookAgain) {
    refresh_all();
  }
}

void LengthIndex::trim() const {
  struct Kept {
    fs::file_time_type written = fs::file_time_type::min();
    std::vector<fs::path> files;
    std::uintmax_t bytes = 0;
  };
  std::map<std::string, Kept> others;  // By what their files begin with.
  std::uintmax_t bytes = 0;
  const files::ReadingFile reading(options_.folder);
  std::error_code code;
  for (fs::directory_iterator entry(options_.folder, code), end; !code && entry != end;
       entry.increment(code)) {
    const std::string file = entry->path().filename().string();
    if (!file.ends_with(kIndexSuffix)) continue;
    std::error_code gone;
    const auto size = entry->file_size(gone);
    const auto written = entry->last_write_time(gone);
    if (gone) continue;
    bytes += size;
    if (std::any_of(sources_.begin(), sources_.end(),
                    [&](const auto& source) { return source != nullptr && source->owns(file); }))
      continue;
    Kept& kept = others[file.substr(0, file.find('-'))];
    kept.written = std::max(kept.written, written);
    kept.files.push_back(entry->path());
    kept.bytes += size;
  }
  while (bytes > options_.folder_bytes_max && !others.empty()) {
    const auto oldest = std::min_element(
        others.begin(), others.end(),
        [](const auto& a, const auto& b) { return a.second.written < b.second.written; });
    for (const auto& file : oldest->second.files) fs::remove(file, code);
    bytes -= oldest->second.bytes;
    others.erase(oldest);
  }
}

}  // namespace troupe::data
