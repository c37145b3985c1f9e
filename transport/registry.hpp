// Makes a transport by the name of its backend.

#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"
#include "transport/transport.hpp"

namespace troupe::transport {

class InprocHub;  // transport/inproc/hub.hpp

/// Settings of the backend `ucx`. Environment variables are not needed and do not override these.
struct UcxOptions {
  /// UCX_TLS. "tcp" forces sockets also on one machine; a list of UCX's names otherwise.
  std::string tls = "all";
  /// UCX_NET_DEVICES. "lo" keeps every socket on this machine, which jobs on one machine should
  /// do: UCX neither authenticates nor encrypts.
  std::string net_devices = "all";
  /// How often idle connections are checked. Detection over shared memory takes about twice this.
  std::chrono::milliseconds keepalive{200};
  /// How long a connection may take to come up, until the peer's process has answered to it; then
  /// it is lost. Longer than the system's first three tries, which end after 3 s. Of the time in
  /// which this process is held up little counts. The default is twice the default of
  /// `cluster.heartbeat_timeout_s`, as of any other way on which nothing comes.
  std::chrono::milliseconds connect_timeout{6000};
  /// How long the thread polls after the last progress before it sleeps, while a message is under
  /// way. Each microsecond costs a core.
  std::chrono::microseconds spin{5};
};

struct TransportOptions {
  Peer self = -1;  ///< Own node id; >= 0.
  /// Bound on the bytes of receives that are posted and not complete; a receive beyond it is
  /// refused. Set it to what the plan promises.
  Bytes receives_max{std::int64_t{1} << 40};
  /// Bound on the bytes of messages that arrived before their receive and had to be copied. A peer
  /// that goes beyond it is disconnected: it ignores the plan.
  Bytes unexpected_max{std::int64_t{1} << 28};
  UcxOptions ucx;
  /// `inproc` only: transports with the same hub reach each other. Null: one hub per process.
  std::shared_ptr<InprocHub> hub;
};

/// Names that `create_transport` knows: "inproc" (threads of one process) and "ucx".
std::vector<std::string_view> transport_names();

/// Errors:
/// - not_found: no such backend; the text lists them.
/// - invalid_argument: an option is out of range or UCX does not know it.
/// - unavailable: this machine lacks what the backend needs; the fix says what to do.
/// - transport_failed: the backend's library failed.
Result<std::unique_ptr<Transport>> create_transport(std::string_view name,
                                                    const TransportOptions& options);

/// Gives back the signals that the libraries of backends take when they are loaded: those of a
/// crash and of a closed terminal. UCX keeps them where the environment has UCX_HANDLE_ERRORS and
/// UCX_DEBUG_SIGNO.
void leave_signals_alone();

}  // namespace troupe::transport
