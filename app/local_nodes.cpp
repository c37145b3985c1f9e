#include "app/local_nodes.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "app/signals.hpp"
#include "app/spawn.hpp"

namespace troupe::app {

namespace {

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
  const std::string parent = std::to_string(getpid());
  for (const NodeId node : nodes) {
    auto started = spawn_self({"troupe", "node", "--join", address, "--node",
                               std::to_string(node.value), "--parent", parent},
                              key);
    if (!started.ok()) {
      Error error = std::move(started).error();
      error.where = "cluster.local_nodes";
      return error;
    }
    children_.push_back({started.value(), node});
  }
  return Done{};
}

std::vector<EndedChild> LocalNodes::reap() {
  std::vector<EndedChild> ended;
  std::erase_if(children_, [&](const Child& child) {
    int status = 0;
    if (waitpid(child.pid, &status, WNOHANG) != child.pid) return false;
    ended.push_back({child.pid, describe(status), WIFSIGNALED(status) ? WTERMSIG(status) : 0});
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

void WantedNodes::want(std::int32_t local_nodes, const std::set<NodeId>& there) {
  {
    const std::lock_guard lock(mutex_);
    for (std::int32_t i = 0; i < local_nodes; ++i)
      if (!there.contains(NodeId{i})) wanted_.push_back(NodeId{i});
  }
  wake_main_thread();
}

std::vector<NodeId> WantedNodes::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(wanted_, {});
}

}  // namespace troupe::app
