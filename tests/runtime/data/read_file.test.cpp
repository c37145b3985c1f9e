#include "runtime/data/reading/read_file.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runtime/files/file_reads.hpp"
#include "temp_folder.hpp"

namespace troupe::data {
namespace {

TEST_CASE("a file that was read, or could not be, is no longer being read", "[files]") {
  const TempFolder folder;
  CHECK(read_file(folder.write("a", "bytes")).ok());
  CHECK_FALSE(read_file(folder.path() / "none").ok());
  CHECK_FALSE(files::oldest_read());
}

/// Reads that have begun so far.
std::int64_t reads_begun() {
  const files::ReadingFile reading("another");
  return files::oldest_read()->number;
}

TEST_CASE("a large file is many reads, so that it does not count as one that hangs", "[files]") {
  const TempFolder folder;
  const std::string text(5'300'000, 'x');
  const auto large = folder.write("large", text), small = folder.write("small", "text");
  const auto before = reads_begun();
  CHECK(read_file(small).value() == "text");
  const auto between = reads_begun();
  CHECK(between - before == 2);
  CHECK(read_file(large).value() == text);
  CHECK(reads_begun() - between >= 2 + 5);
}

}  // namespace
}  // namespace troupe::data
