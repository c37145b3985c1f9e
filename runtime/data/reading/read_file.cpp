#include "runtime/data/reading/read_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "runtime/files/file_reads.hpp"

namespace troupe::data {

namespace {

/// Reads so many bytes, or what there is, block by block, so that a large file is not one that
/// hangs.
std::size_t read_blocks(std::FILE* file, char* to, std::size_t count, files::ReadingFile& reading) {
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  std::size_t filled = 0;
  while (filled < count) {
    const std::size_t block = std::min(kBlock, count - filled);
    const std::size_t got = std::fread(to + filled, 1, block, file);
    filled += got;
    if (got < block) break;
    if (filled < count) reading.went_on();
  }
  return filled;
}

}  // namespace

Result<std::string> read_file(const std::filesystem::path& path, const AcceptFile& accept,
                              std::uintmax_t bytes_max) {
  files::ReadingFile reading(path);
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (!std::filesystem::exists(status)) {
    // A folder on the way that may not be entered is another fault than a missing file.
    if (code && code != std::errc::no_such_file_or_directory && code != std::errc::not_a_directory)
      return Error{Errc::io_failed, "cannot look up " + path.string() + ": " + code.message(), "",
                   "check the permissions of its folders"};
    return Error{Errc::not_found, "there is no file " + path.string(), "", "check the path"};
  }
  if (!std::filesystem::is_regular_file(status))
    return Error{Errc::io_failed, path.string() + " is not a regular file", "", "check the path"};

  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  const auto failed = [&](const char* verb) {
    return Error{Errc::io_failed,
                 std::string("cannot ") + verb + " " + path.string() + ": " + std::strerror(errno),
                 "", "check that the file can be read"};
  };
  if (!file) return failed("open");

  std::string bytes;
  const auto size = std::filesystem::file_size(path, code);
  if (!code) bytes.resize(std::min<std::uintmax_t>(size, kHeadBytes));
  // The file may grow or shrink meanwhile; what counts is what could be read.
  std::size_t filled = read_blocks(file.get(), bytes.data(), bytes.size(), reading);
  if (accept)
    if (auto fine = accept(std::string_view(bytes).substr(0, filled), code ? 0 : size); !fine.ok())
      return std::move(fine).error();
  if (!code) bytes.resize(std::max<std::uintmax_t>(std::min(size, bytes_max), filled));
  filled += read_blocks(file.get(), bytes.data() + filled, bytes.size() - filled, reading);
  bytes.resize(filled);
  if (std::ferror(file.get())) return failed("read");
  return bytes;
}

}  // namespace troupe::data
