#include "runtime/observe/line_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <ios>
#include <string>
#include <system_error>
#include <utility>

#include "runtime/files/file_reads.hpp"
#include "runtime/files/read_stream.hpp"

namespace troupe::observe {

namespace {

constexpr std::size_t kPiece = 1 << 20;  // Of a file that is written whole.

Error failed(const std::filesystem::path& path, std::string_view doing) {
  return {Errc::io_failed, std::string(doing) + " failed: " + std::strerror(errno), path.string(),
          errno == ENOSPC ? "free some disk space" : "check the folder's permissions and its disk"};
}

/// Takes from `text` what was written.
Status write_all(int file, std::string_view& text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const auto put = ::write(file, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return failed(path, "writing");
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return Done{};
}

Status make_folder(const std::filesystem::path& path) {
  if (!path.has_parent_path()) return Done{};
  std::error_code code;
  std::filesystem::create_directories(path.parent_path(), code);
  if (!code) return Done{};
  return Error{Errc::io_failed, "creating the folder failed: " + code.message(), path.string(),
               "check the permissions of the folders above it"};
}

/// Has a file that was written beside its place take it, if it is whole.
Status put_in_place(Status done, int file, const std::string& temporary,
                    const std::filesystem::path& path) {
  if (done && ::fsync(file) != 0) done = failed(path, "flushing to disk");
  ::close(file);
  if (done && ::rename(temporary.c_str(), path.c_str()) != 0) done = failed(path, "renaming");
  if (!done) ::unlink(temporary.c_str());
  return done;
}

// Length of the file up to and including its last newline.
Result<std::int64_t> whole_lines(int file, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(file, &info) != 0) return failed(path, "asking for the size");
  std::array<char, 4096> block{};
  auto end = static_cast<std::int64_t>(info.st_size);
  while (end > 0) {
    const auto count = std::min<std::int64_t>(end, block.size());
    const auto got = ::pread(file, block.data(), static_cast<std::size_t>(count), end - count);
    if (got < 0 && errno == EINTR) continue;
    if (got != count) return failed(path, "reading");
    const std::string_view text(block.data(), static_cast<std::size_t>(count));
    if (const auto newline = text.rfind('\n'); newline != std::string_view::npos)
      return end - count + static_cast<std::int64_t>(newline) + 1;
    end -= count;
  }
  return std::int64_t{0};
}

}  // namespace

LineFile::LineFile(LineFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      unwritten_(std::exchange(other.unwritten_, {})) {}

LineFile& LineFile::operator=(LineFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(unwritten_, other.unwritten_);
  return *this;
}

LineFile::~LineFile() {
  if (file_ < 0) return;
  (void)write_pending();
  ::close(file_);
}

Result<LineFile> LineFile::open(const std::filesystem::path& path, Mode mode) {
  if (auto made = make_folder(path); !made) return made.error();
  LineFile lines;
  lines.path_ = path;
  const int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (mode == Mode::replace ? O_TRUNC : 0);
  lines.file_ = ::open(path.c_str(), flags, 0644);
  if (lines.file_ < 0) return failed(path, "opening for writing");
  const auto length = whole_lines(lines.file_, path);
  if (!length) return length.error();
  if (::ftruncate(lines.file_, length.value()) != 0) return failed(path, "cutting off a torn line");
  return lines;
}

Status LineFile::write(std::string_view line) {
  assert(line.find('\n') == std::string_view::npos);
  unwritten_ += line;
  unwritten_ += '\n';
  return write_pending();
}

Status LineFile::write_pending() {
  std::string_view left = unwritten_;
  const Status done = write_all(file_, left, path_);
  unwritten_.erase(0, unwritten_.size() - left.size());
  return done;
}

Status LineFile::sync() {
  if (auto written = write_pending(); !written.ok()) return written;
  // What is no file on a disk, a pipe, say, cannot be flushed to one.
  if (::fsync(file_) != 0 && errno != EINVAL) return failed(path_, "flushing to disk");
  return Done{};
}

Status write_whole_file(const std::filesystem::path& path, std::string_view text) {
  files::ReadingFile waits(path, files::FileUse::write);
  if (auto made = make_folder(path); !made) return made;
  const auto temporary = path.string() + ".tmp-" + std::to_string(::getpid());
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return failed(path, "opening for writing");
  Status done = Done{};
  for (std::size_t at = 0; done && at < text.size(); at += kPiece) {
    std::string_view piece = text.substr(at, kPiece);
    done = write_all(file, piece, path);
    waits.went_on();
  }
  return put_in_place(std::move(done), file, temporary, path);
}

Status renew_file(const std::filesystem::path& path) {
  files::ReadStream from(path);
  if (!from) return Done{};
  const auto temporary = path.string() + ".tmp-" + std::to_string(::getpid());
  int file = -1;
  {
    const files::ReadingFile waits(path, files::FileUse::write);
    file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  }
  if (file < 0) return failed(path, "opening for writing");
  Status done = Done{};
  std::string piece(kPiece, '\0');
  while (done && from) {
    from.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    const files::ReadingFile waits(path, files::FileUse::write);  // Reading has its own.
    std::string_view got(piece.data(), static_cast<std::size_t>(from.gcount()));
    done = write_all(file, got, path);
  }
  if (done && from.bad()) done = failed(path, "reading");
  const files::ReadingFile waits(path, files::FileUse::write);
  return put_in_place(std::move(done), file, temporary, path);
}

}  // namespace troupe::observe
