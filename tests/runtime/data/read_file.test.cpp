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

}  // namespace
}  // namespace troupe::data
