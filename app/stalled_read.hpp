// The end of a process whose data cannot be read. Node processes of a job have the supervisor for
// that (`actors/read_watch.hpp`); this is for the head before it starts them, and for references.

#pragma once

#include <atomic>
#include <thread>

namespace troupe::app {

/// While this lives, ends the process with an error that names the file once a file of the data set
/// has been read for longer than `timeout_s` (`data.read_timeout_s`).
class EndOnStalledRead {
 public:
  explicit EndOnStalledRead(double timeout_s);
  ~EndOnStalledRead();
  EndOnStalledRead(const EndOnStalledRead&) = delete;
  EndOnStalledRead& operator=(const EndOnStalledRead&) = delete;

 private:
  std::atomic<bool> done_{false};
  std::thread watcher_;
};

}  // namespace troupe::app
