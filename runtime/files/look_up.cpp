#include "runtime/files/look_up.hpp"

#include <system_error>

#include "runtime/files/file_reads.hpp"

namespace troupe::files {

using std::filesystem::file_type;

file_type type_of(const std::filesystem::path& path) {
  const ReadingFile reading(path);
  std::error_code ignored;
  return std::filesystem::status(path, ignored).type();
}

bool is_there(const std::filesystem::path& path) {
  const auto type = type_of(path);
  return type != file_type::none && type != file_type::not_found;
}

bool is_folder(const std::filesystem::path& path) { return type_of(path) == file_type::directory; }

bool is_file(const std::filesystem::path& path) { return type_of(path) == file_type::regular; }

}  // namespace troupe::files
