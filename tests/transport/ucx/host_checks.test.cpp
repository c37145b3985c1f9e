#include "transport/ucx/host_checks.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "transport/ucx/process_identity.hpp"

namespace troupe::transport {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("too little shared memory is found before UCX starts", "[transport][errors]") {
  const auto missing = check_shared_memory("/there/is/no/such/folder");
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == Errc::unavailable);
  // /proc is a file system without any room.
  const auto small = check_shared_memory("/proc");
  REQUIRE_FALSE(small.ok());
  CHECK_THAT(small.error().message, ContainsSubstring("0 KiB free"));
  CHECK_THAT(small.error().fix, ContainsSubstring("--shm-size"));
}

TEST_CASE("processes of one machine share queues, each with each other", "[transport]") {
  CHECK(shared_memory_of(0) == kSharedMemoryMin);
  CHECK(shared_memory_of(2) == kSharedMemoryMin);
  CHECK(shared_memory_of(5) == Bytes{82560 << 10});  // By hand: 20 of 4128 KiB.
  CHECK(check_room("/dev/shm", kSharedMemoryMin).ok());
  CHECK_FALSE(check_room("/dev/shm", kSharedMemoryMin - Bytes{1}).ok());
}

TEST_CASE("only new descriptors are closed on exec", "[transport]") {
  const int old_fd = open("/dev/null", O_RDONLY);
  const auto before = open_descriptors();
  CHECK(before.contains(old_fd));
  const int new_fd = open("/dev/null", O_RDONLY);
  close_new_descriptors_on_exec(before);
  CHECK((fcntl(old_fd, F_GETFD) & FD_CLOEXEC) == 0);
  CHECK((fcntl(new_fd, F_GETFD) & FD_CLOEXEC) != 0);
  close(old_fd);
  close(new_fd);
}

TEST_CASE("processes share queues where one can open them and be woken", "[transport]") {
  const auto own = own_identity();
  REQUIRE(own.process_id != 0);
  CHECK(neighbours(own, own) == Neighbours::yes);
  auto other = own;
  other.network_space += 1;
  CHECK(neighbours(own, other) == Neighbours::with_networks_apart);
  other.process_space += 1;  // Comes first: such a queue cannot even be opened.
  CHECK(neighbours(other, own) == Neighbours::with_own_process_ids);
  other.machine += 1;
  CHECK(neighbours(own, other) == Neighbours::on_two_machines);
  CHECK(neighbours(own, {}) == Neighbours::on_two_machines);
}

TEST_CASE("a process of this machine can be watched, another cannot", "[transport]") {
  const auto own = own_identity();
  bool has_ended = true;
  const int fd = open_process(own, has_ended);
  if (fd < 0) SKIP("this system has no process descriptors");
  CHECK_FALSE(has_ended);
  close(fd);
  auto elsewhere = own;
  elsewhere.machine += 1;
  CHECK(open_process(elsewhere, has_ended) == -1);
  CHECK_FALSE(has_ended);
  elsewhere = own;  // The same number may be another process there.
  elsewhere.process_space += 1;
  CHECK(open_process(elsewhere, has_ended) == -1);
  CHECK_FALSE(has_ended);
  auto reused = own;  // The id lives on in another process.
  reused.started += 1;
  CHECK(open_process(reused, has_ended) == -1);
  CHECK(has_ended);
}

}  // namespace
}  // namespace troupe::transport
