// Who hears at once that a node is lost: what calls NCCL in a process. The transport's failures end
// messages alone.

#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "transport/transport.hpp"

namespace troupe::engine {

class LossListener {
 public:
  virtual ~LossListener() = default;

  /// A node is lost: ends the calls in which it has a part. From any thread, also the transport's.
  virtual void lose(transport::Peer peer, const Error& why) = 0;
};

/// Thread-safe.
class LossListeners {
 public:
  void add(std::weak_ptr<LossListener> listener);     ///< Until it is gone.
  void lose(transport::Peer peer, const Error& why);  ///< Tells all of them.

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<LossListener>> all_;
};

}  // namespace troupe::engine
