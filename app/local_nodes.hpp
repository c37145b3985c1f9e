// The node processes that `troupe train` starts on its own machine.
//
// Owned by the main thread. Children are reaped at once (shared memory takes a zombie for alive),
// and none outlives this object.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::app {

/// A child that has ended.
struct EndedChild {
  pid_t pid = 0;
  std::string how;  ///< "exited with code 1", "was killed by signal 9 (Killed)".
  int signal = 0;   ///< Which one; 0: it exited.
};

class LocalNodes {
 public:
  LocalNodes() = default;
  LocalNodes(const LocalNodes&) = delete;
  LocalNodes& operator=(const LocalNodes&) = delete;
  /// Kills and reaps what is left.
  ~LocalNodes();

  /// Starts processes of this binary that join `address` as these nodes with this key,
  /// which they find in TROUPE_KEY. They form process groups of their own, so that Ctrl-C reaches
  /// the supervisor alone.
  /// Errors: io_failed, with the system's text.
  Status start(const std::vector<NodeId>& nodes, const std::string& address,
               const std::string& key);

  /// Children that have ended since the last call.
  std::vector<EndedChild> reap();

  bool empty() const { return children_.empty(); }

  /// Kills a node's process; nothing where it is not one of these, or has ended.
  void kill_node(NodeId node);
  void kill_all();

 private:
  struct Child {
    pid_t pid = 0;
    NodeId node;
  };
  std::vector<Child> children_;
};

/// Local nodes that the supervisor wants; the main thread, whose children they are, starts them.
class WantedNodes {
 public:
  /// All but these, of a job with so many local ones; wakes the main thread. From any thread.
  void want(std::int32_t local_nodes, const std::set<NodeId>& there);

  /// Those that were wanted since the last call.
  std::vector<NodeId> take();

 private:
  std::mutex mutex_;
  std::vector<NodeId> wanted_;
};

}  // namespace troupe::app
