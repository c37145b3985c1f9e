// The end of a process whose files cannot be read: its data, a checkpoint, saved weights. Node
// processes of a job have the supervisor for that (`actors/node/read_watch.hpp`); this is for the
// head before it starts them, for references, and for every command that looks into the data of a
// job.

#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace troupe::app {

/// While this lives, ends the process with an error that names the file once one has been waited
/// for longer than `timeout_s`. `setting`: where that time is from.
class EndOnStalledRead {
 public:
  explicit EndOnStalledRead(double timeout_s, std::string setting = "data.read_timeout_s");
  ~EndOnStalledRead();
  EndOnStalledRead(const EndOnStalledRead&) = delete;
  EndOnStalledRead& operator=(const EndOnStalledRead&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable is_over_;
  bool done_ = false;
  std::thread watcher_;  // Last: it uses the others.
};

}  // namespace troupe::app
