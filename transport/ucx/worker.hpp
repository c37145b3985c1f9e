// A UCX context and its workers: the progress engines of a transport.
//
// A worker is used by one thread at a time (UCS_THREAD_MODE_SINGLE). All settings come from the
// options; the user's UCX_* variables are read only for what the options do not name.

#pragma once

#include <ucp/api/ucp.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::transport {

/// What a context may use; UCX_TLS, UCX_NET_DEVICES and UCX_KEEPALIVE_INTERVAL.
struct UcxSettings {
  std::string tls;
  std::string net_devices;
  std::chrono::milliseconds keepalive{200};
  bool shared_memory = false;  ///< The transports are queues in shared memory.
};

/// Shared by its workers, which keep it alive.
using UcxContext = std::shared_ptr<ucp_context>;

/// Errors: invalid_argument: UCX does not take an option; transport_failed: with UCX's reason.
Result<UcxContext> start_ucx(const UcxSettings& settings);

class UcxWorker {
 public:
  /// Errors: transport_failed, with UCX's reason.
  static Result<UcxWorker> create(UcxContext context);

  UcxWorker(UcxWorker&&) noexcept = default;
  // Member-wise assignment would drop the old context before the old worker.
  UcxWorker& operator=(UcxWorker&&) = delete;

  /// Advances operations without blocking and runs their callbacks. True when anything moved.
  bool progress() noexcept { return ucp_worker_progress(worker_.get()) != 0; }

  /// Prepares `event_fd` to become readable at the next event. False: events wait already;
  /// progress first.
  bool arm() noexcept { return ucp_worker_arm(worker_.get()) == UCS_OK; }

  /// Belongs to the worker: never close it.
  int event_fd() const { return event_fd_; }

  /// The address that peers connect to.
  Result<std::vector<std::byte>> address() const;

  /// For calls without a wrapper. Never destroy it.
  ucp_worker_h handle() const noexcept { return worker_.get(); }

 private:
  struct Destroy {
    void operator()(ucp_worker_h worker) const { ucp_worker_destroy(worker); }
  };
  using Worker = std::unique_ptr<ucp_worker, Destroy>;

  UcxWorker(UcxContext context, Worker worker, int event_fd)
      : context_(std::move(context)), worker_(std::move(worker)), event_fd_(event_fd) {}

  UcxContext context_;  // Declared first, hence destroyed last.
  Worker worker_;
  int event_fd_ = -1;
};

}  // namespace troupe::transport
