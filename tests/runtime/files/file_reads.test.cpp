#include "runtime/files/file_reads.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>

namespace troupe::files {
namespace {

TEST_CASE("the read that began first is told until it ends", "[files]") {
  CHECK_FALSE(oldest_read());
  auto first = std::make_unique<ReadingFile>("a.png");
  const ReadingFile second("b.png");
  const auto oldest = oldest_read();
  REQUIRE(oldest);
  CHECK(oldest->file == "a.png");
  CHECK(oldest->use == FileUse::read);
  CHECK(oldest_read() == oldest);
  first.reset();
  REQUIRE(oldest_read());
  CHECK(oldest_read()->file == "b.png");
  const ReadingFile again("b.png");  // Another read of the same file is younger.
  CHECK(oldest_read()->number < oldest->number + 2);
}

TEST_CASE("a read that goes on is the youngest again", "[files]") {
  ReadingFile large("large");
  const ReadingFile second("second");
  const auto before = oldest_read();
  REQUIRE(before);
  CHECK(before->file == "large");
  large.went_on();
  REQUIRE(oldest_read());
  CHECK(oldest_read()->file == "second");
  large.went_on();
  CHECK(oldest_read()->file == "second");
}

TEST_CASE("a read that goes on is another read, and ends as one", "[files]") {
  {
    ReadingFile alone("alone");
    const auto before = oldest_read();
    alone.went_on();
    REQUIRE(oldest_read());
    CHECK(oldest_read()->number > before->number);
    CHECK(oldest_read()->file == "alone");
  }
  CHECK_FALSE(oldest_read());
}

}  // namespace
}  // namespace troupe::files
