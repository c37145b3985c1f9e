#include "app/descriptors.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace troupe::app {

namespace {

constexpr rlim_t kMost = 1 << 16;

}  // namespace

void make_room_for_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == 0) return;
  const int any = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (any < 0) return;
  // The table never shrinks again.
  const int highest = static_cast<int>(std::min(limit.rlim_cur, kMost)) - 1;
  if (const int last = fcntl(any, F_DUPFD_CLOEXEC, highest); last >= 0) close(last);
  close(any);
}

}  // namespace troupe::app
