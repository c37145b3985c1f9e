#include "app/local_nodes.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

extern char** environ;

namespace troupe::app {

namespace {

/// Attributes of a child: own process group, no blocked signals.
class SpawnAttributes {
 public:
  SpawnAttributes() {
    posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnAttributes() { posix_spawnattr_destroy(&attributes_); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;

  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

/// This process's environment with the key in it: it is readable by this user alone.
std::vector<std::string> environment_with(const std::string& key) {
  constexpr std::string_view kName = "TROUPE_KEY=";
  std::vector<std::string> variables{std::string(kName) + key};
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!std::string_view(*variable).starts_with(kName)) variables.emplace_back(*variable);
  return variables;
}

/// As system calls take lists of texts. Points into `texts`.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string describe(int status) {
  if (WIFEXITED(status)) return "exited with code " + std::to_string(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  return "was killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
}

}  // namespace

LocalNodes::~LocalNodes() {
  kill_all();
  for (const Child& child : children_) waitpid(child.pid, nullptr, 0);
}

Status LocalNodes::start(const std::vector<NodeId>& nodes, const std::string& address,
                         const std::string& key) {
  const SpawnAttributes attributes;
  const std::string parent = std::to_string(getpid());
  auto variables = environment_with(key);
  const auto environment = pointers_to(variables);
  for (const NodeId node : nodes) {
    std::vector<std::string> words{"troupe",   "node",   "--join",
                                   address,    "--node", std::to_string(node.value),
                                   "--parent", parent};
    const auto arguments = pointers_to(words);
    pid_t pid = 0;
    const int code = posix_spawn(&pid, "/proc/self/exe", nullptr, attributes.get(),
                                 arguments.data(), environment.data());
    if (code != 0)
      return Error{Errc::io_failed, std::string("cannot start a node process: ") + strerror(code),
                   "cluster.local_nodes", "check the limits of this machine (ulimit -u)"};
    children_.push_back({pid, node});
  }
  return Done{};
}

std::vector<EndedChild> LocalNodes::reap() {
  std::vector<EndedChild> ended;
  std::erase_if(children_, [&](const Child& child) {
    int status = 0;
    if (waitpid(child.pid, &status, WNOHANG) != child.pid) return false;
    ended.push_back({child.pid, describe(status)});
    return true;
  });
  return ended;
}

void LocalNodes::kill_node(NodeId node) {
  for (const Child& child : children_)
    if (child.node == node) kill(child.pid, SIGKILL);
}

void LocalNodes::kill_all() {
  for (const Child& child : children_) kill(child.pid, SIGKILL);
}

}  // namespace troupe::app
