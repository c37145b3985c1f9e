#include "runtime/files/read_stream.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "runtime/files/file_reads.hpp"
#include "runtime/files/look_up.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::files {
namespace {

namespace fs = std::filesystem;

/// The oldest read once it is a later one than `number`; it is to be so within half a minute.
std::optional<FileRead> wait_for_read_after(std::int64_t number) {
  for (int i = 0; i < 3000; ++i) {
    if (const auto read = oldest_read(); read && read->number > number) return read;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return std::nullopt;
}

TEST_CASE("a stream reads what a file holds", "[files]") {
  const testing::ScratchFolder folder;
  const fs::path file = folder.path() / "text";
  // Larger than a block, with no newline at its end.
  std::string text;
  for (int line = 0; line < 5000; ++line) text += "line " + std::to_string(line) + '\n';
  text += "cut";
  std::ofstream(file, std::ios::binary) << text;

  ReadStream by_character(file);
  CHECK(std::string{std::istreambuf_iterator<char>(by_character), {}} == text);
  ReadStream by_block(file);
  std::ostringstream copy;
  copy << by_block.rdbuf();
  CHECK(copy.str() == text);
  ReadStream at_once(file);
  std::string whole(text.size(), '\0');
  CHECK(at_once.read(whole.data(), std::ssize(whole)));
  CHECK(whole == text);
  ReadStream by_line(file);
  int lines = 0;
  for (std::string line; std::getline(by_line, line);) {
    CHECK(by_line.eof() == (line == "cut"));
    ++lines;
  }
  CHECK(lines == 5001);
  CHECK_FALSE(oldest_read());
}

TEST_CASE("a stream fails where there is no file", "[files][errors]") {
  ReadStream none("/nowhere/at/all");
  CHECK_FALSE(none);
  std::string line;
  CHECK_FALSE(std::getline(none, line));
  CHECK_FALSE(oldest_read());
}

TEST_CASE("a stream says what it waits for: to be opened, then for each block", "[files]") {
  const testing::ScratchFolder folder;
  const fs::path pipe = folder.path() / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  std::thread reader([&] {
    ReadStream stream(pipe);
    // More than a block of the stream.
    std::string whole(20'006, '\0');
    CHECK(stream.read(whole.data(), std::ssize(whole)));
    CHECK(whole == "onetwo" + std::string(20'000, '!'));
  });
  // Whoever opens a pipe that nobody writes waits.
  const auto opening = wait_for_read_after(0);
  REQUIRE(opening);
  CHECK(opening->file == pipe);
  const int writer = open(pipe.c_str(), O_WRONLY);
  std::int64_t newest = opening->number;
  for (const std::string& block :
       {std::string("one"), std::string("two"), std::string(20'000, '!')}) {
    const auto reading = wait_for_read_after(newest);
    REQUIRE(reading);
    CHECK(reading->file == pipe);
    newest = reading->number;
    REQUIRE(write(writer, block.data(), block.size()) == std::ssize(block));
  }
  reader.join();
  close(writer);
  CHECK_FALSE(oldest_read());
}

TEST_CASE("files are told from folders, and from nothing", "[files]") {
  const testing::ScratchFolder folder;
  const fs::path file = folder.path() / "file", link = folder.path() / "link";
  std::ofstream(file) << "text";
  fs::create_symlink(file, link);
  for (const auto& path : {file, link}) {
    CHECK((is_there(path) && is_file(path) && !is_folder(path)));
  }
  CHECK((is_there(folder.path()) && is_folder(folder.path()) && !is_file(folder.path())));
  for (const auto& path : {folder.path() / "none", file / "below"})
    CHECK_FALSE((is_there(path) || is_file(path) || is_folder(path)));
  CHECK_FALSE(oldest_read());
}

}  // namespace
}  // namespace troupe::files
