// Files that hang: a pipe that nobody writes takes their place.

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "runtime/files/file_reads.hpp"
#include "runtime/state/checkpoint.hpp"
#include "runtime/state/file_digest.hpp"
#include "runtime/state/safetensors.hpp"

namespace troupe::state {
namespace {

namespace fs = std::filesystem;

/// A pipe in a folder of its own.
class Pipe {
 public:
  Pipe() {
    char name[] = "/tmp/troupe-pipe-XXXXXX";
    folder_ = mkdtemp(name);
    REQUIRE(mkfifo(path().c_str(), 0600) == 0);
  }
  ~Pipe() { fs::remove_all(folder_); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  fs::path path() const { return folder_ / "pipe"; }

 private:
  fs::path folder_;
};

/// What is waited for, once it is something; it is to be so within half a minute.
std::optional<files::FileRead> wait_for_read() {
  for (int i = 0; i < 3000; ++i) {
    if (auto read = files::oldest_read()) return read;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return std::nullopt;
}

/// Runs `read` beside this thread until something was said about it; then `let_go` ends its wait.
std::optional<files::FileRead> read_of(const std::function<void()>& read,
                                       const std::function<void()>& let_go) {
  std::thread reader(read);
  const auto seen = wait_for_read();
  let_go();
  reader.join();
  return seen;
}

TEST_CASE("who waits for a file of a checkpoint or of weights says so", "[state][errors]") {
  const Pipe pipe;
  const auto let_go = [&] { close(open(pipe.path().c_str(), O_WRONLY)); };
  const auto checked =
      read_of([&] { CHECK(sha256_of_file(pipe.path()).ok()); }, let_go);  // Of no bytes.
  REQUIRE(checked);
  CHECK(checked->file == pipe.path());
  const auto opened =
      read_of([&] { CHECK_FALSE(SafetensorsReader::open(pipe.path()).ok()); }, let_go);
  REQUIRE(opened);
  CHECK(opened->file == pipe.path());
  CHECK_FALSE(files::oldest_read());
}

TEST_CASE("a file that is large is not one that hangs", "[state]") {
  const Pipe pipe;
  std::thread reader([&] { CHECK(sha256_of_file(pipe.path()).ok()); });
  const int writer = open(pipe.path().c_str(), O_WRONLY);
  std::int64_t newest = 0;
  for (int block = 0; block < 4; ++block) {
    REQUIRE(write(writer, "bytes", 5) == 5);
    // Each block that is read begins another wait.
    std::optional<files::FileRead> seen;
    for (int i = 0; i < 3000 && (!seen || seen->number <= newest); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      seen = files::oldest_read();
    }
    REQUIRE(seen);
    CHECK(seen->number > newest);
    newest = seen->number;
  }
  close(writer);
  reader.join();
}

TEST_CASE("a look into a folder of checkpoints is over when it returns", "[state]") {
  const Pipe pipe;
  CHECK(checkpoints_in(pipe.path().parent_path()).empty());
  CHECK_FALSE(Checkpoint::open(pipe.path().parent_path()).ok());
  CHECK_FALSE(files::oldest_read());
}

}  // namespace
}  // namespace troupe::state
