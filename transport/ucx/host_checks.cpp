#include "transport/ucx/host_checks.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace troupe::transport {

Bytes shared_memory_of(std::int64_t processes) {
  constexpr Bytes kPerConnection{4128 << 10};  // 128 segments of 32 KiB, and what UCX adds.
  return std::max(kSharedMemoryMin, kPerConnection * (processes * (processes - 1)));
}

Status check_room(const char* folder, Bytes free) {
  if (free >= kSharedMemoryMin) return Done{};
  return Error{Errc::unavailable,
               std::string(folder) + " has " + std::to_string(free.count() >> 10) +
                   " KiB free, shared memory between nodes needs " +
                   std::to_string(kSharedMemoryMin.count() >> 10) + " per node",
               "",
               "enlarge it (docker: --shm-size=1g), or do without: UCX_TLS=self,tcp in the "
               "environment"};
}

Status check_shared_memory(const char* folder) {
  struct statvfs space {};
  if (statvfs(folder, &space) != 0) {
    return Error{Errc::unavailable, std::string("shared memory is not there: no ") + folder, "",
                 "mount a tmpfs there, or do without: UCX_TLS=self,tcp in the environment"};
  }
  return check_room(folder, Bytes{static_cast<std::int64_t>(space.f_bavail * space.f_frsize)});
}

std::set<int> open_descriptors() {
  std::set<int> descriptors;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return descriptors;
  while (const auto* entry = readdir(folder)) {
    const int descriptor = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && descriptor != dirfd(folder)) descriptors.insert(descriptor);
  }
  closedir(folder);
  return descriptors;
}

void close_new_descriptors_on_exec(const std::set<int>& before) {
  for (const int descriptor : open_descriptors()) {
    if (before.contains(descriptor)) continue;
    const int flags = fcntl(descriptor, F_GETFD);
    if (flags >= 0) fcntl(descriptor, F_SETFD, flags | FD_CLOEXEC);
  }
}

}  // namespace troupe::transport
