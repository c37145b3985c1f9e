#include "runtime/files/file_reads.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace troupe::files {

namespace {

struct Reads {
  std::mutex mutex;
  std::int64_t begun = 0;
  std::map<std::int64_t, FileRead> files;  // By number: the first is the oldest.
};

Reads& reads() {
  // Never destroyed: a process may end while one of its threads still waits for a file.
  static Reads& all = *new Reads;
  return all;
}

}  // namespace

ReadingFile::ReadingFile(std::filesystem::path file, FileUse use) {
  const std::lock_guard lock(reads().mutex);
  number_ = ++reads().begun;
  reads().files.emplace(number_, FileRead{number_, std::move(file), use});
}

ReadingFile::~ReadingFile() {
  const std::lock_guard lock(reads().mutex);
  reads().files.erase(number_);
}

void ReadingFile::went_on() {
  const std::lock_guard lock(reads().mutex);
  auto node = reads().files.extract(number_);
  number_ = node.key() = node.mapped().number = ++reads().begun;
  reads().files.insert(std::move(node));
}

std::optional<FileRead> oldest_read() {
  const std::lock_guard lock(reads().mutex);
  if (reads().files.empty()) return std::nullopt;
  return reads().files.begin()->second;
}

}  // namespace troupe::files
