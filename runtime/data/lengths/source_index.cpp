#include "runtime/data/lengths/source_index.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <random>
#include <system_error>

#include "runtime/files/file_reads.hpp"
#include "runtime/files/read_stream.hpp"

namespace troupe::data {

namespace {

namespace fs = std::filesystem;

constexpr const char* kUnfinished = ".unfinished";
/// Who writes for longer than this was killed.
constexpr std::chrono::hours kUnfinishedFor{1};
/// Smaller files are not worth being apart.
constexpr std::size_t kSmallBytes = std::size_t{64} << 10;
constexpr std::size_t kDigits = 10;

std::string unique_word() {
  std::random_device source;
  char word[17];
  std::snprintf(word, sizeof word, "%08x%08x", source(), source());
  return word;
}

/// Of `NAME-0000000007-WORD.lengths`: 7; 0 where there is none.
std::int64_t number_of(const fs::path& path, const std::string& name) {
  const std::string file = path.filename().string();
  std::int64_t number = 0;
  if (file.size() > name.size() + 1 + kDigits)
    std::from_chars(file.data() + name.size() + 1, file.data() + name.size() + 1 + kDigits, number);
  return number;
}

Error failed(const char* doing, const fs::path& path, const std::string& why) {
  return {Errc::io_failed, std::string("cannot ") + doing + " " + path.string() + ": " + why, "",
          ""};
}

/// All of it or nothing, whoever looks, and whenever this process is killed.
Status write_whole(const fs::path& path, const std::string& bytes) {
  const fs::path unfinished = path.string() + kUnfinished;
  const files::ReadingFile writing(path, files::FileUse::write);
  std::error_code code;
  fs::create_directories(path.parent_path(), code);
  if (code) return failed("make the folder", path.parent_path(), code.message());
  errno = 0;
  std::ofstream file(unfinished, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) {
    Error error = failed("write", path, std::strerror(errno));
    fs::remove(unfinished, code);
    return error;
  }
  fs::rename(unfinished, path, code);
  if (!code) return Done{};
  Error error = failed("write", path, code.message());
  fs::remove(unfinished, code);
  return error;
}

void remove_abandoned(const fs::path& path) {
  std::error_code code;
  const auto written = fs::last_write_time(path, code);
  if (!code && fs::file_time_type::clock::now() - written > kUnfinishedFor) fs::remove(path, code);
}

}  // namespace

SourceIndex::SourceIndex(fs::path folder, std::string name, std::size_t bytes_max)
    : folder_(std::move(folder)), name_(std::move(name)), bytes_max_(bytes_max) {}

bool SourceIndex::owns(const std::string& file_name) const {
  return file_name.starts_with(name_ + "-");
}

std::optional<std::string> SourceIndex::find(const LengthKey& key) const {
  const std::shared_lock lock(mutex_);
  for (const auto* recent : {&unsaved_, &saving_})
    if (const auto found = recent->find(key); found != recent->end()) return found->second;
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
    const auto entry = (*segment)->entries.find(key);
    if (!entry) continue;
    (*segment)->used[*entry].store(true, std::memory_order_relaxed);
    return std::string((*segment)->entries[*entry].value);
  }
  return std::nullopt;
}

void SourceIndex::put(const LengthKey& key, std::string value) {
  const std::size_t bytes = IndexEntry{key, value}.bytes();
  const std::lock_guard lock(mutex_);
  if (unsaved_bytes_ + bytes > bytes_max_) return;
  const auto [entry, is_new] = unsaved_.insert_or_assign(key, std::move(value));
  if (is_new) unsaved_bytes_ += bytes;
}

bool SourceIndex::has_unsaved() const {
  const std::shared_lock lock(mutex_);
  return !unsaved_.empty();
}

std::vector<fs::path> SourceIndex::listed(std::vector<std::string>& notes) {
  std::vector<fs::path> paths;
  const files::ReadingFile reading(folder_);
  std::error_code code;
  for (fs::directory_iterator entry(folder_, code), end; !code && entry != end;
       entry.increment(code)) {
    const std::string file = entry->path().filename().string();
    if (!owns(file)) continue;
    if (file.ends_with(kIndexSuffix))
      paths.push_back(entry->path());
    else if (file.ends_with(kUnfinished))
      remove_abandoned(entry->path());
  }
  if (code && code != std::errc::no_such_file_or_directory && refused_.insert(folder_).second)
    notes.push_back(failed("look into", folder_, code.message()).message);
  // By number, then by name: all processes see them in one order.
  std::sort(paths.begin(), paths.end(), [&](const fs::path& a, const fs::path& b) {
    const auto first = number_of(a, name_), second = number_of(b, name_);
    return first != second ? first < second : a < b;
  });
  return paths;
}

Result<SourceIndex::SegmentPointer> SourceIndex::read(const fs::path& path) {
  auto bytes = files::read_whole(path);
  if (!bytes) return Error{Errc::not_found, "it cannot be opened", "", ""};
  auto parsed = IndexSegment::parse(std::move(*bytes));
  if (!parsed.ok()) return std::move(parsed).error();
  const std::size_t size = parsed.value().size();
  return SegmentPointer(std::make_shared<const Segment>(
      Segment{path, std::move(parsed).value(), std::make_unique<std::atomic<bool>[]>(size)}));
}

void SourceIndex::refresh(std::vector<std::string>& notes) {
  // A file that another process has taken into a newer one since it was listed: look again.
  constexpr int kTries = 3;
  for (int tries = 0; tries < kTries; ++tries) {
    std::vector<SegmentPointer> found;
    bool is_whole = true;
    for (const fs::path& path : listed(notes)) {
      const auto known = std::find_if(segments_.begin(), segments_.end(),
                                      [&](const auto& segment) { return segment->path == path; });
      if (known != segments_.end()) {
        found.push_back(*known);
        continue;
      }
      if (refused_.contains(path)) continue;
      auto segment = read(path);
      if (segment.ok()) {
        found.push_back(std::move(segment).value());
        continue;
      }
      std::error_code code;
      if (segment.error().code == Errc::not_found && !fs::exists(path, code)) {
        is_whole = false;
        continue;
      }
      refused_.insert(path);
      notes.push_back("of the index of lengths " + path.string() + " cannot be used: " +
                      segment.error().message + "; what it held is read anew");
      if (segment.error().code == Errc::bad_data) fs::remove(path, code);
    }
    {
      const std::lock_guard lock(mutex_);
      segments_ = std::move(found);
    }
    if (is_whole) return;
  }
}

std::size_t SourceIndex::file_bytes() const {
  std::size_t bytes = 0;
  for (const auto& segment : segments_) bytes += segment->entries.bytes();
  return bytes;
}

std::vector<SourceIndex::SegmentPointer> SourceIndex::small_ones() const {
  std::size_t bytes = 0;
  for (const auto& [key, value] : saving_) bytes += IndexEntry{key, value}.bytes();
  if (bytes + file_bytes() > bytes_max_) return segments_;
  // With one all newer ones too: an older one must not come to stand before what corrects it.
  auto first = segments_.size();
  for (auto segment = segments_.size(); segment-- > 0;) {
    const std::size_t own = segments_[segment]->entries.bytes();
    if (own <= std::max(bytes, kSmallBytes)) first = segment;
    bytes += own;
  }
  return {segments_.begin() + static_cast<std::ptrdiff_t>(first), segments_.end()};
}

std::vector<SourceIndex::Candidate> SourceIndex::merged(
    const std::vector<SegmentPointer>& taken) const {
  std::vector<Candidate> all;
  for (const auto& [key, value] : saving_) all.push_back({{key, value}, true});
  for (auto segment = taken.rbegin(); segment != taken.rend(); ++segment)
    for (std::size_t i = 0; i < (*segment)->entries.size(); ++i)
      all.push_back({(*segment)->entries[i], (*segment)->used[i].load(std::memory_order_relaxed)});
  const auto by_key = [](const Candidate& a, const Candidate& b) {
    return a.entry.key < b.entry.key;
  };
  std::stable_sort(all.begin(), all.end(), by_key);  // Of one key the newest stays first.
  all.erase(std::unique(
                all.begin(), all.end(),
                [](const Candidate& a, const Candidate& b) { return a.entry.key == b.entry.key; }),
            all.end());
  std::size_t bytes = 0;
  for (const Candidate& candidate : all) bytes += candidate.entry.bytes();
  if (bytes <= bytes_max_) return all;
  // With room for a while, what nobody has asked for first: files that are gone, or changed since.
  std::stable_partition(all.begin(), all.end(), [](const Candidate& a) { return a.used; });
  std::size_t kept = 0;
  for (bytes = 0; kept < all.size(); ++kept) {
    bytes += all[kept].entry.bytes();
    if (bytes > bytes_max_ / 4 * 3) break;
  }
  all.resize(kept);
  std::sort(all.begin(), all.end(), by_key);
  return all;
}

Result<SourceIndex::SegmentPointer> SourceIndex::write(std::span<const Candidate> candidates) {
  std::vector<IndexEntry> entries;
  entries.reserve(candidates.size());
  for (const Candidate& candidate : candidates) entries.push_back(candidate.entry);
  auto bytes = segment_of(entries);
  if (!bytes.ok()) return std::move(bytes).error();
  const std::int64_t newest = segments_.empty() ? 0 : number_of(segments_.back()->path, name_);
  std::string number = std::to_string(newest + 1);
  number.insert(0, kDigits - std::min(kDigits, number.size()), '0');
  const fs::path path = folder_ / (name_ + "-" + number + "-" + unique_word() + kIndexSuffix);
  if (Status written = write_whole(path, bytes.value()); !written.ok())
    return std::move(written).error();
  auto parsed = IndexSegment::parse(std::move(bytes).value());
  if (!parsed.ok()) return std::move(parsed).error();
  auto used = std::make_unique<std::atomic<bool>[]>(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) used[i] = candidates[i].used;
  return SegmentPointer(
      std::make_shared<const Segment>(Segment{path, std::move(parsed).value(), std::move(used)}));
}

Result<bool> SourceIndex::save(std::vector<std::string>& notes) {
  refresh(notes);
  {
    const std::lock_guard lock(mutex_);
    if (unsaved_.empty()) return false;
    saving_.swap(unsaved_);
    unsaved_bytes_ = 0;
  }
  const auto taken = small_ones();
  auto written = write(merged(taken));
  {
    const std::lock_guard lock(mutex_);
    if (written.ok()) {
      segments_.resize(segments_.size() - taken.size());
      segments_.push_back(written.value());
    } else {
      for (auto& [key, value] : saving_) {
        const std::size_t bytes = IndexEntry{key, value}.bytes();
        if (unsaved_.emplace(key, std::move(value)).second) unsaved_bytes_ += bytes;
      }
    }
    saving_.clear();
  }
  if (!written.ok()) return std::move(written).error();
  std::error_code ignored;
  for (const auto& segment : taken) fs::remove(segment->path, ignored);
  return true;
}

}  // namespace troupe::data
