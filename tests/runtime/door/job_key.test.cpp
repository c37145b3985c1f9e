#include "runtime/door/job_key.hpp"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <fstream>

#include "tests/support/scratch_folder.hpp"

namespace troupe::door {
namespace {

using Catch::Matchers::ContainsSubstring;

const std::string kText = "00ff10" + std::string(58, 'a');

TEST_CASE("a key is read as it was written, with spaces around it", "[door]") {
  const auto key = JobKey::parse(" \t" + kText + "\r\n", "here");
  REQUIRE(key.ok());
  CHECK(key.value().text() == kText);
  CHECK(key.value().bytes()[1] == 0xff);
}

TEST_CASE("what is no key is refused without being repeated", "[door][errors]") {
  for (const auto& text : {std::string(), kText.substr(1), kText + "0", "g" + kText.substr(1),
                           "-" + kText.substr(1), kText.substr(0, 30) + " " + kText.substr(31)}) {
    const auto key = JobKey::parse(text, "k.key");
    REQUIRE_FALSE(key.ok());
    CHECK(key.error().code == Errc::invalid_argument);
    CHECK(key.error().where == "k.key");
    CHECK_THAT(key.error().message, !ContainsSubstring("aaaa"));
  }
}

TEST_CASE("no two new keys are the same", "[door]") {
  CHECK_FALSE(JobKey::random() == JobKey::random());
}

TEST_CASE("a key file is its owner's alone and never written over", "[door]") {
  const testing::ScratchFolder folder;
  const auto file = folder.path() / "job.key";
  const auto key = JobKey::random();
  REQUIRE(write_key(file, key).ok());
  struct stat facts {};
  REQUIRE(stat(file.c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0600);
  REQUIRE(read_key(file).ok());
  CHECK(read_key(file).value() == key);

  const auto again = write_key(file, JobKey::random());
  REQUIRE_FALSE(again.ok());
  CHECK_THAT(again.error().message, ContainsSubstring("exists"));
  CHECK(read_key(file).value() == key);
}

TEST_CASE("a key that others may read is refused", "[door][errors]") {
  const testing::ScratchFolder folder;
  const auto file = folder.path() / "job.key";
  REQUIRE(write_key(file, JobKey::random()).ok());
  for (const mode_t mode : {0640, 0604, 0660}) {
    REQUIRE(chmod(file.c_str(), mode) == 0);
    const auto key = read_key(file);
    REQUIRE_FALSE(key.ok());
    CHECK_THAT(key.error().message, ContainsSubstring("others may read"));
    CHECK_THAT(key.error().fix, ContainsSubstring("chmod 600"));
  }
}

TEST_CASE("a key file that is not there is named, with how to make one", "[door][errors]") {
  const auto key = read_key("/nowhere/job.key");
  REQUIRE_FALSE(key.ok());
  CHECK(key.error().code == Errc::not_found);
  CHECK(key.error().where == "/nowhere/job.key");
  CHECK_THAT(key.error().fix, ContainsSubstring("troupe key new"));
}

TEST_CASE("the environment may hold the key, not a file's name", "[door]") {
  unsetenv("TROUPE_KEY");
  REQUIRE(key_of_environment().ok());
  CHECK_FALSE(key_of_environment().value().has_value());
  setenv("TROUPE_KEY", kText.c_str(), 1);
  CHECK(key_of_environment().value()->text() == kText);
  setenv("TROUPE_KEY", "/home/me/job.key", 1);
  const auto key = key_of_environment();
  REQUIRE_FALSE(key.ok());
  CHECK_THAT(key.error().fix, ContainsSubstring("cluster.key"));
  unsetenv("TROUPE_KEY");
}

}  // namespace
}  // namespace troupe::door
