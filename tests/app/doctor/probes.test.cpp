#include "app/doctor/probes.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>

#include "app/doctor/system_files.hpp"

using namespace troupe;
using namespace troupe::app;
namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A folder that stands for `/`.
class Root {
 public:
  Root() {
    char name[] = "/tmp/troupe-doctor-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Root() { fs::remove_all(path_); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  const fs::path& path() const { return path_; }
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }

 private:
  fs::path path_;
};

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr const char* kMeminfo = "MemTotal:       8388608 kB\nMemAvailable:   4194304 kB\n";

}  // namespace

TEST_CASE("memory is the machine's, and less in a control group of either kind", "[app]") {
  const Root root;
  root.write("proc/meminfo", kMeminfo);
  MemoryFacts facts = probe_memory(root.path());
  CHECK(facts.total == Bytes{8 * kGiB});
  CHECK(facts.available == Bytes{4 * kGiB});
  CHECK_FALSE(facts.group_limit);

  SECTION("one hierarchy") {
    root.write("proc/self/cgroup", "0::/jobs/a\n");
    root.write("sys/fs/cgroup/jobs/a/cgroup.controllers", "memory\n");
    root.write("sys/fs/cgroup/jobs/a/memory.max", "max\n");
    CHECK_FALSE(probe_memory(root.path()).group_limit);
    root.write("sys/fs/cgroup/jobs/a/memory.max", "1073741824\n");
    root.write("sys/fs/cgroup/jobs/a/memory.current", "1000\n");
    facts = probe_memory(root.path());
    CHECK(facts.group_limit == Bytes{kGiB});
    CHECK(facts.group_used == Bytes{1000});
  }
  SECTION("one per controller, seen from within a container") {
    root.write("proc/self/cgroup", "4:cpu,memory:/docker/77\n0::/\n");
    root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
    root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
    facts = probe_memory(root.path());
    CHECK(facts.group_limit == Bytes{2 * kGiB});
    CHECK(facts.group_used == Bytes{5});
    root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK_FALSE(probe_memory(root.path()).group_limit);
  }
}

TEST_CASE("a quota of cores is read from a control group of either kind", "[app]") {
  const Root root;
  CHECK_FALSE(probe_cores(root.path()).quota);
  SECTION("one hierarchy") {
    root.write("proc/self/cgroup", "0::/\n");
    root.write("sys/fs/cgroup/cgroup.controllers", "cpu\n");
    root.write("sys/fs/cgroup/cpu.max", "max 100000\n");
    CHECK_FALSE(probe_cores(root.path()).quota);
    root.write("sys/fs/cgroup/cpu.max", "150000 100000\n");
    CHECK(probe_cores(root.path()).quota == 1.5);
  }
  SECTION("one per controller") {
    root.write("proc/self/cgroup", "1:cpu:/\n");
    root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    CHECK_FALSE(probe_cores(root.path()).quota);
    root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
    CHECK(probe_cores(root.path()).quota == 0.5);
  }
}

TEST_CASE("what may still be started, and InfiniBand, are read", "[app]") {
  const Root root;
  root.write("proc/self/cgroup", "1:pids:/\n");
  root.write("sys/fs/cgroup/pids/pids.max", "100\n");
  root.write("sys/fs/cgroup/pids/pids.current", "60\n");
  CHECK(probe_limits(root.path()).tasks_left == 40);
  CHECK_FALSE(probe_limits(root.path()).has_infiniband);
  fs::create_directories(root.path() / "sys/class/infiniband");
  CHECK_FALSE(probe_limits(root.path()).has_infiniband);
  fs::create_directories(root.path() / "sys/class/infiniband/mlx5_0");
  CHECK(probe_limits(root.path()).has_infiniband);
}

TEST_CASE("containers and their walls are recognised", "[app]") {
  const Root root;
  CHECK(probe_container(root.path()).kind.empty());
  CHECK_FALSE(probe_container(root.path()).ptrace_scope);
  root.write("proc/sys/kernel/yama/ptrace_scope", "1\n");
  root.write(".dockerenv", "");
  CHECK(probe_container(root.path()).kind == "docker");
  CHECK(probe_container(root.path()).ptrace_scope == 1);
  root.write("run/.containerenv", "");
  CHECK(probe_container(root.path()).kind == "podman");
  fs::create_directories(root.path() / "var/run/secrets/kubernetes.io");
  CHECK(probe_container(root.path()).kind == "kubernetes");
}

TEST_CASE("a card of NVIDIA is seen without its driver", "[app]") {
  const Root root;
  CHECK_FALSE(probe_gpus(root.path()).has_card);
  root.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
  root.write("sys/bus/pci/devices/0000:01:00.0/class", "0x040300\n");  // Its sound.
  CHECK_FALSE(probe_gpus(root.path()).has_card);
  root.write("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
  CHECK(probe_gpus(root.path()).has_card);
}

TEST_CASE("a folder is tried with a file that is gone afterwards", "[app]") {
  const Root root;
  const FolderFacts facts = probe_folder(root.path() / "runs/first/");
  CHECK_FALSE(facts.failed);
  CHECK(facts.wanted == root.path() / "runs/first");
  CHECK(facts.there == root.path());
  CHECK(facts.free > Bytes{});
  CHECK(facts.write_mb_per_s > 0);
  CHECK(facts.has_locks);
  CHECK_FALSE(facts.file_system.empty());
  CHECK(fs::is_empty(root.path()));
}

TEST_CASE("folders that cannot be written say why", "[app][errors]") {
  const Root root;
  root.write("file", "");
  CHECK(probe_folder(root.path() / "file").failed);
  CHECK(probe_folder(root.path() / "file/runs").failed);
  const FolderFacts proc = probe_folder("/proc");
  REQUIRE(proc.failed);
  CHECK_THAT(proc.failed->message, ContainsSubstring("a file cannot be made: "));
}

TEST_CASE("the kind of a file system is named", "[app]") {
  const FolderFacts memory = probe_folder("/dev/shm");
  if (memory.file_system != "tmpfs") SKIP("/dev/shm is no tmpfs here");
  CHECK(memory.is_memory);
  CHECK_FALSE(memory.is_network);
}

TEST_CASE("files of UCX that no process has open are left over", "[app]") {
  const Root root;
  const fs::path folder = root.path() / "shm";
  root.write("shm/ucx_shm_posix_1", "123");
  root.write("shm/ucx_shm_posix_2", "45");
  root.write("shm/other", "1");
  root.write("proc/12/maps",
             "7f-80 rw-s 0 00:1b 4 " + (folder / "ucx_shm_posix_1").string() + "\n");
  const SharedMemoryFacts facts = probe_shared_memory(folder, root.path());
  CHECK(facts.is_there);
  CHECK(facts.leftovers == 1);
  CHECK(facts.leftover_bytes == Bytes{2});
  CHECK_FALSE(probe_shared_memory(root.path() / "none", root.path()).is_there);
}

TEST_CASE("this machine has a loopback, UCX's tcp and a door that opens", "[app]") {
  const auto ways = probe_ucx("1.13.1").ways;
  CHECK(std::ranges::any_of(ways, [](const UcxWay& way) {
    return way.transport == "tcp" && way.device == "lo" && way.is_network;
  }));
  const auto interfaces = probe_interfaces().interfaces;
  const auto loopback = std::ranges::find(interfaces, true, &NetworkInterface::is_loopback);
  REQUIRE(loopback != interfaces.end());
  CHECK(loopback->is_up);
  CHECK(std::ranges::count(loopback->addresses, "127.0.0.1") == 1);
  const auto door = probe_door(std::chrono::steady_clock::now() + std::chrono::seconds(30));
  REQUIRE(door.handshake.ok());
  CHECK(door.handshake.value().count() > 0);
  CHECK_THAT(door.library, ContainsSubstring("OpenSSL "));
}

TEST_CASE("the interface's speed is the system's word", "[app]") {
  const Root root;
  root.write("sys/class/net/lo/speed", "25000\n");
  const auto interfaces = probe_interfaces(root.path()).interfaces;
  const auto loopback = std::ranges::find(interfaces, std::string("lo"), &NetworkInterface::name);
  REQUIRE(loopback != interfaces.end());
  CHECK(loopback->speed_mbit == 25000);
  root.write("sys/class/net/lo/speed", "-1\n");
  CHECK(probe_interfaces(root.path()).interfaces.front().speed_mbit == 0);
}
