#include "runtime/files/file_reads.hpp"

#include <utility>

#include "runtime/files/under_way.hpp"

namespace troupe::files {

namespace {

UnderWay<FileRead>& reads() {
  // Never destroyed: a process may end while one of its threads still waits for a file.
  static UnderWay<FileRead>& all = *new UnderWay<FileRead>;
  return all;
}

}  // namespace

ReadingFile::ReadingFile(std::filesystem::path file, FileUse use)
    : number_(reads().begin({0, std::move(file), use})) {}

ReadingFile::~ReadingFile() { reads().end(number_); }

void ReadingFile::went_on() { number_ = reads().begin_anew(number_); }

std::optional<FileRead> oldest_read() { return reads().oldest(); }

}  // namespace troupe::files
