#include "runtime/job/read_text.hpp"

#include <fstream>
#include <iterator>
#include <system_error>

namespace troupe::job {

namespace fs = std::filesystem;

Result<std::string> read_text(const fs::path& file, std::uintmax_t bytes_max,
                              const FileKind& kind) {
  std::error_code error;
  const auto fail = [&](Errc code, std::string message, std::string fix) {
    return Error{code, std::move(message), file.string(), std::move(fix)};
  };
  if (!fs::exists(file, error))
    return fail(Errc::not_found, "no such " + kind.name,
                "check the path; it starts from the current directory");
  if (!fs::is_regular_file(file, error))
    return fail(Errc::invalid_argument, "not a file", "name a " + kind.name + ", " + kind.example);
  if (fs::file_size(file, error) > bytes_max)
    return fail(Errc::invalid_argument,
                "larger than " + std::to_string(bytes_max >> 20) + " MiB; this is no " + kind.name,
                "name a " + kind.name);
  std::ifstream stream(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream.good() && !stream.eof())
    return fail(Errc::io_failed, "cannot be read", "check its permissions");
  if (!stream.is_open()) return fail(Errc::io_failed, "cannot be opened", "check its permissions");
  return text;
}

}  // namespace troupe::job
