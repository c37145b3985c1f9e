#include "runtime/door/loopback_key.hpp"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "tests/support/scratch_folder.hpp"

namespace troupe::door {
namespace {

/// The folder of keys is below here while this lives.
struct RuntimeFolder {
  testing::ScratchFolder folder;
  RuntimeFolder() { setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1); }
  ~RuntimeFolder() { unsetenv("XDG_RUNTIME_DIR"); }
  std::filesystem::path keys() const { return folder.path() / "troupe"; }
};

TEST_CASE("a job's key is found under its port until the job ends", "[door]") {
  const RuntimeFolder place;
  const auto key = JobKey::random();
  {
    const auto offered = LoopbackKey::offer(7001, key);
    REQUIRE(offered.ok());
    REQUIRE(find_loopback_key(7001).ok());
    CHECK(find_loopback_key(7001).value() == key);
    CHECK_FALSE(find_loopback_key(7002).value().has_value());
    struct stat facts {};
    REQUIRE(stat(place.keys().c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777) == 0700);
  }
  CHECK_FALSE(find_loopback_key(7001).value().has_value());
}

TEST_CASE("the key of a killed job makes room for the next one's", "[door]") {
  const RuntimeFolder place;
  auto killed = LoopbackKey::offer(7001, JobKey::random());
  REQUIRE(killed.ok());
  const auto key = JobKey::random();
  const auto next = LoopbackKey::offer(7001, key);
  REQUIRE(next.ok());
  CHECK(find_loopback_key(7001).value() == key);
}

TEST_CASE("keys that nobody holds are taken away, others stay", "[door]") {
  const RuntimeFolder place;
  const auto living = LoopbackKey::offer(7001, JobKey::random());
  REQUIRE(living.ok());
  const auto left = place.keys() / "1-7002.key", young = place.keys() / "1-7003.key";
  for (const auto& file : {left, young}) REQUIRE(write_key(file, JobKey::random()).ok());
  for (const auto& entry : std::filesystem::directory_iterator(place.keys()))
    if (entry.path() != young)
      std::filesystem::last_write_time(
          entry.path(), std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));

  const auto next = LoopbackKey::offer(7004, JobKey::random());
  REQUIRE(next.ok());
  CHECK_FALSE(std::filesystem::exists(left));
  CHECK(std::filesystem::exists(young));
  CHECK(find_loopback_key(7001).value().has_value());
}

TEST_CASE("a folder that others may enter holds no keys", "[door][errors]") {
  const RuntimeFolder place;
  std::filesystem::create_directory(place.keys());
  REQUIRE(chmod(place.keys().c_str(), 0755) == 0);
  CHECK_FALSE(LoopbackKey::offer(7001, JobKey::random()).ok());
  CHECK_FALSE(find_loopback_key(7001).ok());
  CHECK(std::filesystem::is_empty(place.keys()));
}

}  // namespace
}  // namespace troupe::door
