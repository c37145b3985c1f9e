#include "transport/ucx/process_identity.hpp"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

namespace troupe::transport {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Field 22 of /proc/PID/stat. The name, field 2, may hold spaces: count after its last ')'.
std::uint64_t start_time(std::int64_t process_id) {
  const auto stat = read_file("/proc/" + std::to_string(process_id) + "/stat");
  const auto name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  for (int number = 3; number < 22; ++number) fields >> field;
  std::uint64_t started = 0;
  fields >> started;
  return started;
}

}  // namespace

Neighbours neighbours(const ProcessIdentity& one, const ProcessIdentity& other) {
  if (one.process_id == 0 || other.process_id == 0 || one.machine != other.machine)
    return Neighbours::on_two_machines;
  if (one.process_space != other.process_space) return Neighbours::with_own_process_ids;
  if (one.network_space != other.network_space) return Neighbours::with_networks_apart;
  return Neighbours::yes;
}

ProcessIdentity own_identity() {
  const auto boot = read_file("/proc/sys/kernel/random/boot_id");
  struct stat processes {
  }, networks{};
  if (boot.empty() || stat("/proc/self/ns/pid", &processes) != 0 ||
      stat("/proc/self/ns/net", &networks) != 0)
    return {};
  return {std::hash<std::string>{}(boot), processes.st_ino, networks.st_ino, start_time(getpid()),
          getpid()};
}

int open_process(const ProcessIdentity& identity, bool& has_ended) {
  has_ended = false;
  const Neighbours how = neighbours(identity, own_identity());
  if (how != Neighbours::yes && how != Neighbours::with_networks_apart) return -1;
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, identity.process_id, 0));
  if (fd < 0) {
    has_ended = errno == ESRCH;
    return -1;
  }
  // Opened first, compared after: between the two the id can no longer change hands unnoticed.
  if (start_time(identity.process_id) == identity.started) return fd;
  has_ended = true;
  close(fd);
  return -1;
}

}  // namespace troupe::transport
