#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "app/doctor/checks.hpp"

using namespace troupe;
using namespace troupe::app;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

FolderFacts good_folder() {
  FolderFacts facts;
  facts.wanted = "/runs/first";
  facts.there = "/runs";
  facts.file_system = "ext4";
  facts.free = Bytes{100 * kGiB};
  facts.write_mb_per_s = 500;
  return facts;
}

void expect_warning(const FolderFacts& facts, const char* says) {
  const Finding finding = check_folder("disk", facts);
  CHECK(finding.level == Level::warning);
  CHECK_THAT(finding.found + finding.fix, ContainsSubstring(says));
  CHECK_FALSE(finding.fix.empty());
}

SharedMemoryFacts good_memory() {
  SharedMemoryFacts facts;
  facts.total = facts.free = Bytes{kGiB};
  return facts;
}

}  // namespace

TEST_CASE("a folder on a disk with room is fine", "[app]") {
  CHECK(check_folder("disk", good_folder()) ==
        fine("disk", "/runs/first: ext4, 100.0 GiB free, writes 500 MB/s to the disk"));
}

TEST_CASE("each fault of a folder is warned of", "[app]") {
  FolderFacts facts = good_folder();
  facts.free = Bytes{kGiB - 1};
  expect_warning(facts, "make room");
  facts = good_folder();
  facts.write_mb_per_s = 19;
  expect_warning(facts, "which is slow");
  facts = good_folder();
  facts.is_memory = true;
  expect_warning(facts, "gone with the machine");
  facts = good_folder();
  facts.is_of_container = true;
  expect_warning(facts, "gone with the container");
  facts = good_folder();
  facts.is_network = true;
  expect_warning(facts, "checkpoint.dir");
  facts.has_locks = false;
  expect_warning(facts, "it has no locks");
}

TEST_CASE("a folder that cannot be written is a problem", "[app][errors]") {
  FolderFacts facts = good_folder();
  facts.failed = Error{Errc::io_failed, "a file cannot be made: Permission denied", "", "choose"};
  CHECK(check_folder("disk", facts) ==
        problem("disk", "/runs/first: a file cannot be made: Permission denied", "choose"));
}

TEST_CASE("shared memory must hold the queues between a job's processes", "[app]") {
  SharedMemoryFacts facts = good_memory();
  CHECK(check_shared_memory(facts) == fine("shared memory", "1.0 GiB of 1.0 GiB free in /dev/shm"));
  // By hand: 5 processes are 20 connections of 4128 KiB, 80.6 MiB; 9 are 72, 290 MiB.
  facts.processes = 5;
  facts.free = Bytes{20 * 4128 << 10};
  CHECK(check_shared_memory(facts).level == Level::ok);
  facts.free -= Bytes{1};
  CHECK(check_shared_memory(facts).level == Level::problem);
  CHECK_THAT(check_shared_memory(facts).found, ContainsSubstring("5 processes here take 81 MiB"));
  CHECK_THAT(check_shared_memory(facts).fix, ContainsSubstring("--shm-size"));
}

TEST_CASE("too little shared memory is a problem without a job too", "[app]") {
  SharedMemoryFacts facts = good_memory();
  facts.free = Bytes{32 << 20};
  CHECK(check_shared_memory(facts).level == Level::ok);
  facts.free -= Bytes{1};
  CHECK(check_shared_memory(facts).level == Level::problem);
  facts.is_there = false;
  CHECK(check_shared_memory(facts).found == "there is no /dev/shm");
  facts.is_wanted = false;
  CHECK(check_shared_memory(facts).level == Level::ok);
}

TEST_CASE("queues that are left of dead processes are warned of", "[app]") {
  SharedMemoryFacts facts = good_memory();
  facts.leftovers = 3;
  facts.leftover_bytes = Bytes{12 << 20};
  CHECK(check_shared_memory(facts).level == Level::warning);
  CHECK_THAT(check_shared_memory(facts).found, ContainsSubstring("3 files of UCX (12 MiB)"));
}
