// The end of a process whose files cannot be read (its data, a checkpoint, saved weights), or that
// is in a function of a plug-in which does not return. Node processes of a job have the supervisor
// for that (`actors/node/read_watch.hpp`, `call_watch.hpp`); this is for the head, for references,
// and for every command that looks into the data of a job or plans it.

#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/job/job.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::app {

/// Looks at the time while this lives, on a thread of its own. The first error of `look` goes to
/// `tell`, on that thread; then it looks no more.
class StallWatcher {
 public:
  using Look = std::function<Status(std::chrono::steady_clock::time_point now)>;

  StallWatcher(Look look, std::function<void(const Error&)> tell);
  ~StallWatcher();
  StallWatcher(const StallWatcher&) = delete;
  StallWatcher& operator=(const StallWatcher&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable is_over_;
  bool done_ = false;
  std::thread watcher_;  // Last: it uses the others.
};

/// Looks for a function of a plug-in that has not returned for so long. `setting`: where that time
/// is from.
StallWatcher::Look look_at_calls(double timeout_s,
                                 const std::string& setting = "train.stall_timeout_s");

/// While this lives, ends the process with an error that names the file once one has been waited
/// for longer than `timeout_s`. `setting`: where that time is from.
class EndOnStalledRead {
 public:
  explicit EndOnStalledRead(double timeout_s, const std::string& setting = "data.read_timeout_s");
  /// For what a process does with a job: its `data.read_timeout_s`; and an error that names the
  /// function ends the process where one of a plug-in has not returned for `train.stall_timeout_s`.
  /// `whose`: what errors say behind these settings where they are not the job's.
  explicit EndOnStalledRead(const job::Job& job, const std::string& whose = {});

 private:
  StallWatcher watcher_;
};

/// The same for commands that know no job: while this lives, one limit is for files and for
/// functions of plug-ins, which a run's records name.
class EndOnStall {
 public:
  EndOnStall(double timeout_s, const std::string& setting);

 private:
  StallWatcher watcher_;
};

}  // namespace troupe::app
