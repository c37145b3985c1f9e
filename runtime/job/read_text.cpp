#include "runtime/job/read_text.hpp"

#include <iterator>
#include <system_error>

#include "runtime/files/file_reads.hpp"
#include "runtime/files/look_up.hpp"
#include "runtime/files/read_stream.hpp"

namespace troupe::job {

namespace fs = std::filesystem;

namespace {

std::uintmax_t size_of(const fs::path& file) {
  const files::ReadingFile reading(file);
  std::error_code ignored;
  return fs::file_size(file, ignored);
}

}  // namespace

Result<std::string> read_text(const fs::path& file, std::uintmax_t bytes_max,
                              const FileKind& kind) {
  const auto fail = [&](Errc code, std::string message, std::string fix) {
    return Error{code, std::move(message), file.string(), std::move(fix)};
  };
  if (!files::is_there(file))
    return fail(Errc::not_found, "no such " + kind.name,
                "check the path; it starts from the current directory");
  if (!files::is_file(file))
    return fail(Errc::invalid_argument, "not a file", "name a " + kind.name + ", " + kind.example);
  if (size_of(file) > bytes_max)
    return fail(Errc::invalid_argument,
                "larger than " + std::to_string(bytes_max >> 20) + " MiB; this is no " + kind.name,
                "name a " + kind.name);
  files::ReadStream stream(file);
  if (!stream) return fail(Errc::io_failed, "cannot be opened", "check its permissions");
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream.good() && !stream.eof())
    return fail(Errc::io_failed, "cannot be read", "check its permissions");
  return text;
}

}  // namespace troupe::job
