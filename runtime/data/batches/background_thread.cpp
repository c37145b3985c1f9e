#include "runtime/data/batches/background_thread.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

namespace troupe::data {

void run_in_background() {
  thread_local bool done = false;
  if (std::exchange(done, true)) return;
  // On Linux a nice value is a thread's own; 0 names the calling one.
  setpriority(PRIO_PROCESS, 0, std::min(19, getpriority(PRIO_PROCESS, 0) + 10));
}

}  // namespace troupe::data
