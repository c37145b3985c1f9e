// A disk that is full, as a process sees it.

#pragma once

#include <sys/resource.h>

#include <csignal>
#include <cstddef>

namespace troupe::testing {

/// While it lives no file of this process can be written beyond so many bytes (EFBIG).
class SmallFiles {
 public:
  explicit SmallFiles(std::size_t bytes) {
    handled_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit small = before_;
    small.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handled_);
  }

 private:
  rlimit before_{};
  void (*handled_)(int) = nullptr;
};

}  // namespace troupe::testing
