#include "runtime/files/read_stream.hpp"

#include <sstream>
#include <utility>

#include "runtime/files/file_reads.hpp"

namespace troupe::files {

ReadStream::Blocks::Blocks(const std::filesystem::path& file) : file_(file) {
  const ReadingFile reading(file_);
  open(file_, std::ios::in | std::ios::binary);
}

ReadStream::Blocks::int_type ReadStream::Blocks::underflow() {
  const ReadingFile reading(file_);
  return std::filebuf::underflow();
}

std::streamsize ReadStream::Blocks::xsgetn(char* to, std::streamsize count) {
  return std::streambuf::xsgetn(to, count);
}

ReadStream::ReadStream(const std::filesystem::path& file) : std::istream(nullptr), blocks_(file) {
  rdbuf(&blocks_);
  if (!blocks_.is_open()) setstate(std::ios::failbit);
}

std::optional<std::string> read_whole(const std::filesystem::path& file) {
  ReadStream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) return std::nullopt;
  return std::move(text).str();
}

}  // namespace troupe::files
