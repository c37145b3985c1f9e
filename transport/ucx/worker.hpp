// A UCX context with its one worker: the progress engine of a transport.
//
// Used by one thread at a time (UCS_THREAD_MODE_SINGLE). All settings come from `UcxOptions`; the
// user's UCX_* variables are read only for what the options do not name.

#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "transport/registry.hpp"

namespace troupe::transport {

class UcxWorker {
 public:
  /// Errors: invalid_argument: UCX does not take an option; transport_failed: with UCX's reason.
  static Result<UcxWorker> create(const UcxOptions& options);

  UcxWorker(UcxWorker&&) noexcept = default;
  // Member-wise assignment would drop the old context before the old worker.
  UcxWorker& operator=(UcxWorker&&) = delete;

  /// Advances operations without blocking and runs their callbacks. True when anything moved.
  bool progress() noexcept { return ucp_worker_progress(worker_.get()) != 0; }

  /// Prepares `event_fd` to become readable at the next event. False: events wait already;
  /// progress first.
  bool arm() noexcept { return ucp_worker_arm(worker_.get()) == UCS_OK; }

  /// Belongs to the worker: never close it.
  Result<int> event_fd() const;

  /// The address that peers connect to.
  Result<std::vector<std::byte>> address() const;

  /// For calls without a wrapper. Never destroy it.
  ucp_worker_h handle() const noexcept { return worker_.get(); }

 private:
  struct CleanUp {
    void operator()(ucp_context_h context) const { ucp_cleanup(context); }
  };
  struct Destroy {
    void operator()(ucp_worker_h worker) const { ucp_worker_destroy(worker); }
  };
  using Context = std::unique_ptr<ucp_context, CleanUp>;
  using Worker = std::unique_ptr<ucp_worker, Destroy>;

  UcxWorker(Context context, Worker worker)
      : context_(std::move(context)), worker_(std::move(worker)) {}

  Context context_;  // Declared first, hence destroyed last.
  Worker worker_;
};

}  // namespace troupe::transport
