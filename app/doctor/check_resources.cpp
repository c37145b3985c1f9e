#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>

#include "app/doctor/checks.hpp"

namespace troupe::app {

namespace {

// A node holds about 15 files of its own and 10 for each other process; the head some for each.
constexpr std::int64_t kOwnFiles = 64;
constexpr std::int64_t kFilesPerNode = 16;
constexpr std::int64_t kUsualFiles = 1024;
constexpr std::int64_t kTasksMin = 256;  // A node has a dozen threads and those of its devices.
constexpr Bytes kMemoryMin{std::int64_t{2} << 30};

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

std::string words_of(std::int64_t limit) {
  return limit == kUnlimited ? "no limit" : std::to_string(limit);
}

std::string cores(double count) { return number(count) + (count == 1 ? " core" : " cores"); }

Finding check_open_files(const LimitFacts& facts) {
  const char* const name = "open files";
  const std::int64_t needed = kOwnFiles + kFilesPerNode * facts.nodes;
  const std::string found = words_of(facts.open_files);
  const std::int64_t wanted = std::max(needed, kUsualFiles);
  const std::string fix =
      facts.open_files_hard >= wanted
          ? "ulimit -n " + std::to_string(wanted)
          : "let this user have more: nofile in /etc/security/limits.conf (docker: --ulimit "
            "nofile=" +
                std::to_string(wanted) + ")";
  if (facts.open_files < needed)
    return problem(name, found + ", a process needs about " + std::to_string(needed), fix);
  if (facts.open_files < kUsualFiles)
    return warning(name, found + ", enough for few nodes alone", fix);
  return fine(name, found);
}

Finding check_locked_memory(const LimitFacts& facts) {
  const std::string found =
      facts.locked_memory == kUnlimited ? "no limit" : size_words(Bytes{facts.locked_memory});
  if (facts.has_infiniband && facts.locked_memory != kUnlimited)
    return warning("locked memory", found + ", and InfiniBand locks what it sends from",
                   "ulimit -l unlimited, or memlock in /etc/security/limits.conf");
  return fine("locked memory", found + (facts.has_infiniband ? "" : "; nothing here needs it"));
}

Finding check_tasks(const LimitFacts& facts) {
  const std::string found =
      facts.tasks_left == kUnlimited
          ? "no limit to processes and threads"
          : std::to_string(facts.tasks_left) + " more processes and threads may be started";
  if (facts.tasks_left < kTasksMin)
    return warning("tasks", found, "raise `ulimit -u`, or pids.max (docker: --pids-limit)");
  return fine("tasks", found);
}

}  // namespace

std::vector<Finding> check_limits(const LimitFacts& facts) {
  const std::string core =
      facts.core_bytes == 0 ? "none: a crash leaves nothing to look into (ulimit -c unlimited)"
      : facts.core_bytes == kUnlimited ? "whole ones"
                                       : "up to " + size_words(Bytes{facts.core_bytes});
  return {check_open_files(facts), check_locked_memory(facts), check_tasks(facts),
          fine("core files", core)};
}

Finding check_memory(const MemoryFacts& facts) {
  const Bytes limit = facts.group_limit.value_or(facts.total);
  const Bytes left = facts.left();
  const std::string found =
      size_words(std::max(left, Bytes{})) + " of " + size_words(limit) + " free";
  if (left < kMemoryMin)
    return warning("memory", found, "end what else runs here, or choose a smaller model or batch");
  if (facts.group_limit)
    return warning(
        "memory",
        found + "; its control group allows less than the machine's " + size_words(facts.total) +
            ", which plans count on",
        "say it in the job, divided by the devices here: cluster.device_memory_gib = " +
            number(std::floor(static_cast<double>(limit.count()) / (1 << 30) * 10) / 10));
  return fine("memory", found);
}

Finding check_cores(const CoreFacts& facts) {
  const auto allowed = static_cast<double>(facts.allowed);
  const double usable = std::min(allowed, facts.quota.value_or(allowed));
  std::string found = cores(usable);
  if (facts.allowed < facts.online) found += ", of " + std::to_string(facts.online) + " online";
  if (usable < allowed) found += " by the control group's quota, on " + cores(allowed);
  if (static_cast<double>(facts.wanted) > usable)
    return warning("cores",
                   found + "; the job has " + std::to_string(facts.wanted) + " threads here",
                   "start fewer nodes here, or lower cluster.threads_per_device");
  if (usable < allowed)
    return warning("cores", found + ": threads beyond it are held up in the middle of a step",
                   "raise the quota (docker: --cpus), or use fewer threads than it has cores");
  return fine("cores", found);
}

Finding check_threads(const ThreadVariables& facts) {
  const auto is_off = [](const std::string& value) {
    return value.empty() || value == "false" || value == "FALSE" || value == "0";
  };
  const std::string fix = "unset it: a job's processes do not know of each other's cores";
  if (facts.affinity && !facts.affinity->empty())
    return warning("threads",
                   "GOMP_CPU_AFFINITY = " + *facts.affinity + " puts every node on the same cores",
                   fix);
  if (facts.binding && !is_off(*facts.binding))
    return warning("threads",
                   "OMP_PROC_BIND = " + *facts.binding + " puts every node on the same cores", fix);
  if (facts.count)
    return fine("threads", "OMP_NUM_THREADS = " + *facts.count +
                               " does not count: cluster.threads_per_device decides");
  return fine("threads", "as many as cluster.threads_per_device says");
}

Finding check_container(const ContainerFacts& facts) {
  std::string found = facts.kind.empty() ? "none" : facts.kind;
  if (facts.has_own_process_ids) found += ", process ids of its own";
  if (facts.has_own_ipc) found += ", shared memory of its own";
  // Rows go over the network then, and the log of a job says so.
  if (facts.has_own_process_ids || facts.has_own_ipc)
    found += " (nodes in several containers exchange rows over the network)";
  if (facts.ptrace_scope.value_or(0) > 0)
    found += "; a debugger reaches its own children alone (ptrace_scope " +
             std::to_string(*facts.ptrace_scope) + ")";
  return fine("container", found);
}

Finding no_answer(const std::string& name, double limit_s, Level level) {
  return {name, level, "no answer within " + number(limit_s) + " s",
          "look at the disk, network file system, name server or driver behind it; --timeout waits "
          "longer"};
}

}  // namespace troupe::app
