#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "app/doctor/probes.hpp"
#include "app/doctor/system_files.hpp"

namespace troupe::app {

namespace fs = std::filesystem;

namespace {

std::int64_t bound(rlim_t limit) {
  return limit == RLIM_INFINITY ? kUnlimited : static_cast<std::int64_t>(limit);
}

rlimit limit_of(__rlimit_resource what) {
  rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  getrlimit(what, &limit);
  return limit;
}

/// Threads of this user's processes. Root is not counted: the limit does not hold for it.
std::int64_t own_tasks(const fs::path& root) {
  std::int64_t count = 0;
  std::error_code code;
  for (const auto& process : fs::directory_iterator(root / "proc", code)) {
    struct stat facts {};
    const auto threads = number_behind(process.path() / "status", "Threads");
    if (threads && stat(process.path().c_str(), &facts) == 0 && facts.st_uid == getuid())
      count += *threads;
  }
  return count;
}

/// Whether the namespace is another one than the system's first, whose number is fixed.
bool is_own_namespace(const fs::path& root, const char* name, ino_t first) {
  struct stat facts {};
  return stat((root / "proc/self/ns" / name).c_str(), &facts) == 0 && facts.st_ino != first;
}

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace

LimitFacts probe_limits(const fs::path& root) {
  LimitFacts facts;
  const rlimit files = limit_of(RLIMIT_NOFILE);
  facts.open_files = bound(files.rlim_cur);
  facts.open_files_hard = bound(files.rlim_max);
  facts.locked_memory = bound(limit_of(RLIMIT_MEMLOCK).rlim_cur);
  facts.core_bytes = bound(limit_of(RLIMIT_CORE).rlim_cur);
  const auto tasks = bound(limit_of(RLIMIT_NPROC).rlim_cur);
  if (tasks != kUnlimited && geteuid() != 0)
    facts.tasks_left = std::max<std::int64_t>(0, tasks - own_tasks(root));
  if (const auto group = group_folder(root, "pids"))
    if (const auto most = number_in(*group / "pids.max"))
      facts.tasks_left = std::min(
          facts.tasks_left,
          std::max<std::int64_t>(0, *most - number_in(*group / "pids.current").value_or(0)));
  std::error_code code;
  facts.has_infiniband = fs::exists(root / "sys/class/infiniband", code) &&
                         !fs::is_empty(root / "sys/class/infiniband", code);
  return facts;
}

MemoryFacts probe_memory(const fs::path& root) {
  MemoryFacts facts;
  const fs::path file = root / "proc/meminfo";
  facts.total = Bytes{number_behind(file, "MemTotal").value_or(0) << 10};
  facts.available = Bytes{number_behind(file, "MemAvailable").value_or(0) << 10};
  const auto group = group_folder(root, "memory");
  if (!group) return facts;
  const auto either = [&](const char* second, const char* first) {
    const auto number = number_in(*group / second);
    return number ? number : number_in(*group / first);
  };
  const auto limit = either("memory.max", "memory.limit_in_bytes");
  // The first kind says "no limit" by a number beyond all memory.
  if (!limit || Bytes{*limit} >= facts.total) return facts;
  facts.group_limit = Bytes{*limit};
  facts.group_used = Bytes{either("memory.current", "memory.usage_in_bytes").value_or(0)};
  return facts;
}

CoreFacts probe_cores(const fs::path& root) {
  CoreFacts facts;
  facts.online = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  facts.allowed = facts.online;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) facts.allowed = std::max(1, CPU_COUNT(&set));
  const auto group = group_folder(root, "cpu");
  if (!group) return facts;
  double quota = 0, period = 0;
  if (std::ifstream file(*group / "cpu.max"); file >> quota >> period && period > 0)
    facts.quota = quota / period;
  const auto first = number_in(*group / "cpu.cfs_quota_us"),
             every = number_in(*group / "cpu.cfs_period_us");
  if (first && every && *first > 0 && *every > 0)
    facts.quota = static_cast<double>(*first) / static_cast<double>(*every);
  return facts;
}

ThreadVariables probe_threads() {
  return {variable("OMP_NUM_THREADS"), variable("OMP_PROC_BIND"), variable("GOMP_CPU_AFFINITY")};
}

ContainerFacts probe_container(const fs::path& root) {
  ContainerFacts facts;
  std::error_code code;
  if (fs::exists(root / "var/run/secrets/kubernetes.io", code))
    facts.kind = "kubernetes";
  else if (fs::exists(root / "run/.containerenv", code))
    facts.kind = "podman";
  else if (fs::exists(root / ".dockerenv", code))
    facts.kind = "docker";
  facts.has_own_process_ids = is_own_namespace(root, "pid", 0xEFFFFFFCU);
  facts.has_own_ipc = is_own_namespace(root, "ipc", 0xEFFFFFFFU);
  facts.ptrace_scope = number_in(root / "proc/sys/kernel/yama/ptrace_scope");
  return facts;
}

}  // namespace troupe::app
