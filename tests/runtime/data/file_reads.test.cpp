#include "runtime/data/file_reads.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>

#include "runtime/data/read_file.hpp"
#include "temp_folder.hpp"

namespace troupe::data {
namespace {

TEST_CASE("the read that began first is told until it ends", "[data]") {
  CHECK_FALSE(oldest_read());
  auto first = std::make_unique<ReadingFile>("a.png");
  const ReadingFile second("b.png");
  const auto oldest = oldest_read();
  REQUIRE(oldest);
  CHECK(oldest->file == "a.png");
  CHECK(oldest_read() == oldest);
  first.reset();
  REQUIRE(oldest_read());
  CHECK(oldest_read()->file == "b.png");
  const ReadingFile again("b.png");  // Another read of the same file is younger.
  CHECK(oldest_read()->number < oldest->number + 2);
}

TEST_CASE("a file that was read, or could not be, is no longer being read", "[data]") {
  const TempFolder folder;
  CHECK(read_file(folder.write("a", "bytes")).ok());
  CHECK_FALSE(read_file(folder.path() / "none").ok());
  CHECK_FALSE(oldest_read());
}

}  // namespace
}  // namespace troupe::data
