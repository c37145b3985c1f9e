// A rank of NCCL groups in a process of its own (nccl_node.cpp), as a test talks to it.

#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "transport/operation.hpp"
#include "transport/transport.hpp"

namespace troupe::transport::testing {

/// A helper program, killed at the end. Every answer has a limit.
class NcclProcess {
 public:
  explicit NcclProcess(Peer self) {
    int to_child[2], from_child[2];
    if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0) {
      throw std::runtime_error("pipe2 failed");
    }
    auto program =
        (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "nccl_node").string();
    auto number = std::to_string(self);
    char* const arguments[] = {program.data(), number.data(), nullptr};
    process_ = fork();
    if (process_ == 0) {
      dup2(to_child[0], STDIN_FILENO);
      dup2(from_child[1], STDOUT_FILENO);
      execv(arguments[0], arguments);
      _exit(127);
    }
    close(to_child[0]);
    close(from_child[1]);
    to_ = to_child[1];
    from_ = from_child[0];
  }
  NcclProcess(const NcclProcess&) = delete;
  NcclProcess& operator=(const NcclProcess&) = delete;
  ~NcclProcess() {
    end();
    close(to_);
    close(from_);
  }

  void end() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
  }

  void tell(const std::string& line) {
    const auto text = line + "\n";
    // To a process that has gone it fails, and so will the answer.
    (void)!write(to_, text.data(), text.size());
  }
  /// What it says; "gone" when it has ended. Throws when it hangs.
  std::string answer() {
    const auto deadline = within(kAnswersWithin);
    while (true) {
      const auto end = heard_.find('\n');
      if (end != std::string::npos) {
        const auto line = heard_.substr(0, end);
        heard_.erase(0, end + 1);
        return line;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      pollfd watched{from_, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&watched, 1, static_cast<int>(left.count())) == 0) {
        throw std::runtime_error("a rank hangs");
      }
      char bytes[4096];
      const auto size = read(from_, bytes, sizeof bytes);
      if (size <= 0) return "gone";
      heard_.append(bytes, static_cast<std::size_t>(size));
    }
  }
  std::string ask(const std::string& line) {
    tell(line);
    return answer();
  }

 private:
  /// Twice what each side may take by its own limits, and more for a loaded machine: beyond it is a
  /// hang.
  static constexpr std::chrono::milliseconds kAnswersWithin{60000};

  pid_t process_ = 0;
  int to_ = -1, from_ = -1;
  std::string heard_;
};

}  // namespace troupe::transport::testing
