#include "runtime/observe/line_file.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/many_tries.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/support/small_files.hpp"

namespace troupe::observe {
namespace {

using testing::ScratchFolder;

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("lines are there as soon as they are written", "[observe]") {
  const ScratchFolder folder;
  auto file = LineFile::open(folder / "new/m.jsonl", LineFile::Mode::replace).value();
  REQUIRE(file.write("{\"a\":1}").ok());
  CHECK(read(folder / "new/m.jsonl") == "{\"a\":1}\n");
  REQUIRE(file.write("").ok());
  CHECK(read(folder / "new/m.jsonl") == "{\"a\":1}\n\n");
}

TEST_CASE("resuming keeps whole lines and cuts a torn one", "[observe]") {
  const ScratchFolder folder;
  const std::string longer_than_a_block(10'000, 'x');
  for (const auto& torn : {std::string(), std::string("{\"st"), longer_than_a_block}) {
    std::ofstream(folder / "m") << "one\ntwo\n" << torn;
    auto file = LineFile::open(folder / "m", LineFile::Mode::resume).value();
    REQUIRE(file.write("three").ok());
    CHECK(read(folder / "m") == "one\ntwo\nthree\n");
  }
  std::ofstream(folder / "m") << "only torn";
  REQUIRE(LineFile::open(folder / "m", LineFile::Mode::resume).ok());
  CHECK(read(folder / "m").empty());
}

TEST_CASE("replacing starts empty", "[observe]") {
  const ScratchFolder folder;
  std::ofstream(folder / "m") << "old\n";
  REQUIRE(LineFile::open(folder / "m", LineFile::Mode::replace).ok());
  CHECK(read(folder / "m").empty());
}

TEST_CASE("a writer that is killed leaves whole lines only", "[observe]") {
  const ScratchFolder folder;
  const std::string line(500, 'y');
  const pid_t child = ::fork();
  if (child == 0) {
    auto file = LineFile::open(folder / "m", LineFile::Mode::replace);
    for (int i = 0; i < 20; ++i)
      if (!file.ok() || !file.value().write(line).ok()) ::_exit(1);
    // No destructor, no flush: what a kill leaves.
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(read(folder / "m").size() == 20 * 501);
}

TEST_CASE("what a full disk does not take is written before what follows", "[observe][errors]") {
  const ScratchFolder folder;
  auto lines = LineFile::open(folder / "m.jsonl", LineFile::Mode::replace).value();
  REQUIRE(lines.write("{\"step\":1}").ok());
  {
    const testing::SmallFiles full(15);
    CHECK(lines.write("{\"step\":2}").error().code == Errc::io_failed);
    CHECK(lines.unwritten() == 7);
    CHECK_FALSE(lines.write("{\"step\":3}").ok());
    CHECK_FALSE(lines.sync().ok());
    CHECK(lines.unwritten() == 18);
  }
  SECTION("with the next line") { CHECK(lines.write("{\"step\":4}").ok()); }
  SECTION("when it is brought to disk") { CHECK(lines.sync().ok()); }
  SECTION("at its end") { const LineFile ends = std::move(lines); }
  const std::string text = read(folder / "m.jsonl");
  CHECK(text.starts_with("{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n"));
}

TEST_CASE("a moved file goes on where it was", "[observe]") {
  const ScratchFolder folder;
  auto first = LineFile::open(folder / "m", LineFile::Mode::replace).value();
  REQUIRE(first.write("1").ok());
  LineFile second = std::move(first);
  REQUIRE(second.write("2").ok());
  CHECK(read(folder / "m") == "1\n2\n");
}

TEST_CASE("a whole file is replaced at once, or not at all", "[observe]") {
  const ScratchFolder folder;
  REQUIRE(write_whole_file(folder / "sub/plan.json", "first").ok());
  REQUIRE(write_whole_file(folder / "sub/plan.json", "second").ok());
  CHECK(read(folder / "sub/plan.json") == "second");
  const auto files = std::filesystem::directory_iterator(folder / "sub");
  CHECK(std::distance(begin(files), end(files)) == 1);
}

TEST_CASE("a renewed file has what it had, and whoever had it open writes another one",
          "[observe]") {
  const ScratchFolder folder;
  const std::string longer_than_a_piece((std::size_t{1} << 20) + 5, 'x');
  for (const std::string& text : {std::string(), std::string("one\ntw"), longer_than_a_piece}) {
    std::ofstream old(folder / "m", std::ios::binary);
    old << text << std::flush;
    REQUIRE(renew_file(folder / "m").ok());
    old << "three\n" << std::flush;
    CHECK(read(folder / "m") == text);
  }
  REQUIRE(renew_file(folder / "none").ok());
  CHECK_FALSE(std::filesystem::exists(folder / "none"));
}

TEST_CASE("a file that cannot be renewed stays as it is", "[observe][errors]") {
  const ScratchFolder folder;
  std::ofstream(folder / "m") << "longer than fits";
  {
    const testing::SmallFiles full(3);
    CHECK(renew_file(folder / "m").error().code == Errc::io_failed);
  }
  CHECK(read(folder / "m") == "longer than fits");
  const std::filesystem::directory_iterator files(folder.path());
  CHECK(std::distance(begin(files), end(files)) == 1);
}

TEST_CASE("renewing a long file takes no memory of its length", "[observe]") {
  constexpr int kMiB = 96;
  const ScratchFolder folder;
  const std::filesystem::path path = folder / "m";
  {
    std::ofstream file(path, std::ios::binary);
    const std::string mebibyte(std::size_t{1} << 20, 'x');
    for (int i = 0; i < kMiB; ++i) file << mebibyte;
  }
  const pid_t child = ::fork();
  if (child == 0) {  // What it has had at most begins with what it has.
    const std::int64_t before = testing::peak_memory_mib();
    const bool is_renewed = renew_file(path).ok();
    ::_exit(is_renewed && testing::peak_memory_mib() <= before + kMiB / 2 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(std::filesystem::file_size(path) == std::uintmax_t{kMiB} << 20);
}

TEST_CASE("folders and full disks are errors", "[observe][errors]") {
  const ScratchFolder folder;
  CHECK(LineFile::open(folder.path(), LineFile::Mode::resume).error().code == Errc::io_failed);
  std::ofstream(folder / "file") << "x";
  CHECK(write_whole_file(folder / "file/plan.json", "x").error().code == Errc::io_failed);
  if (!std::filesystem::exists("/dev/full")) SKIP("no /dev/full");
  CHECK_FALSE(LineFile::open("/dev/full", LineFile::Mode::resume).ok());
}

}  // namespace
}  // namespace troupe::observe
