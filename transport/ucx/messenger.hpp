// The protocol of the UCX backend: connections, messages under way, failures.
//
// Lives on the event loop's thread; nothing here is thread-safe. Messages are UCX active messages
// with a header of our own; they meet their receives in a `Mailbox`. Chosen over UCX's tags, which
// do not tell the sender apart, never fail by themselves and never forget an old epoch.
//
// UCX's callbacks only record; what follows from them happens after `ucp_worker_progress` has
// returned, so that no callback of ours ever runs inside UCX.
//
// Peers on this machine are reached twice: over the network, by which they introduce themselves,
// and over a channel, shared memory that only the two use. The end of either ends the connection.
//
// A connection is up once a flush of its endpoint is complete, which is begun with it: UCX
// completes one when the peer's UCX has answered to the connection, whether its process has
// connected or not.
//
// A connection: open -> (disconnect) -> a goodbye leaves -> force-closed -> gone, or
// open -> (error, goodbye of the peer, end of its process, not up in time) -> force-closed -> gone.
// If UCX keeps a request for long, its operation fails anyway; where it was the channel's, the
// channel goes, and with it what UCX held. A request of the network stays parked with its buffer
// until UCX is done.

#pragma once

#include <ucp/api/ucp.h>

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "transport/links.hpp"
#include "transport/mailbox.hpp"
#include "transport/registry.hpp"
#include "transport/ucx/address.hpp"
#include "transport/ucx/event_loop.hpp"
#include "transport/ucx/inbound.hpp"
#include "transport/ucx/worker.hpp"

namespace troupe::transport {

class Messenger final : public EventLoop::Client {
 public:
  /// `network` reaches every peer; null `shared_memory`: no channels. REQUIRES: nothing else uses
  /// `network`. It is destroyed first: until then UCX may hold requests.
  Messenger(const TransportOptions& options, UcxWorker& network, UcxContext shared_memory,
            const UcxAddress& self);
  ~Messenger() override;  ///< REQUIRES: the worker is destroyed.

  /// The loop that drives this; set once, before the first command.
  void set_loop(EventLoop* loop) { loop_ = loop; }
  void set_failure_handler(PeerFailureHandler handler) { handler_ = std::move(handler); }

  // The commands. Contracts as in `Transport`; `completion` takes the outcome.
  Status connect(Peer peer, const UcxAddress& address);
  void send(Peer peer, const Tag& tag, ConstBuffer data, const Completion& completion);
  void receive(Peer peer, const Tag& tag, MutableBuffer data, const Completion& completion);
  void withdraw(Peer peer, const Tag& tag, const Completion& completion);
  void disconnect(Peer peer, const Error& why);
  void drop_older_than(EpochNumber epoch);

  /// Ends all connections, after giving messages under way a moment to leave. Blocks the loop's
  /// thread, two seconds at the very most. Nothing may be called afterwards.
  void shut_down();

  bool progress() override;
  bool expects_more() const override;
  bool arm() override;
  bool tick() override;

 private:
  struct Channel;
  struct Connection;
  struct Header;
  struct Path;
  struct Port;
  struct Request;
  /// News for a caller: an operation's end, or a call of the failure handler.
  struct Finished {
    Completion completion;
    Status status;
    std::function<void()> call;
  };

  // UCX's callbacks.
  static ucs_status_t on_message(void* port, const void* header, std::size_t header_bytes,
                                 void* data, std::size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t on_goodbye(void* port, const void* header, std::size_t header_bytes,
                                 void* data, std::size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t on_channel(void* port, const void* header, std::size_t header_bytes,
                                 void* data, std::size_t bytes, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* user_data);
  static void on_fetched(void* request, ucs_status_t status, std::size_t bytes, void* user_data);
  static void on_endpoint_error(void* connection, ucp_ep_h endpoint, ucs_status_t status);

  Result<Link> incoming(Peer peer) const;
  Error no_connection(Peer peer) const;
  Status add_path(Connection& connection, const UcxWorker& worker,
                  const std::vector<std::byte>& address);
  void watch_process(Connection& connection, const ProcessIdentity& identity);

  // Channels.
  void listen(Port& port);
  void open_channel(Connection& connection, const ProcessIdentity& identity);
  void offer_channel(Connection& connection);
  void take_channel(Link link, const std::vector<std::byte>& address);
  void drain(Connection& connection);
  void close_channel(Connection& connection);
  void end_channel(Connection& connection);

  // Messages.
  void send_to_self(const Tag& tag, ConstBuffer data, const Completion& completion);
  Request& add_request(Connection& connection);
  void start(Request& request, unsigned id, ucp_ep_h endpoint);
  /// The header of a message that shows this process's token; none of a stranger's.
  std::optional<Header> read_header(const void* bytes, std::size_t size) const;
  void take_in(Link link, std::uint64_t sequence, Incoming message);
  void deliver(Link link, Incoming message);
  void overflow(Link link);
  void hand_over(Link link, const Posted& receive, Incoming message);
  void fetch(Link link, const Posted& receive, const Incoming::Offered& offer);
  void take_goodbye(Link link);
  /// `closing`: its endpoint ends first, so that an offer's sender sees a failure, not success.
  void discard(Incoming& message, const Status& local_send, Connection* closing = nullptr);
  /// Leaves an offer that nobody takes to a connection whose goodbye is still under way, to be
  /// released after the endpoints; false when the link has no such connection.
  bool keep_until_closed(Link link, const Incoming::Offered& offer);
  void finish(Request& request, ucs_status_t status);
  void tell(Request& request, Status outcome);
  void complete(const Completion& completion, Status status);
  void complete_receive(const Posted& receive, Status status);
  void forget(Mailbox<Incoming>::Remains remains, const Error& error, Connection* closing);
  void forget_link(Link link, const Error& error, Connection* closing = nullptr);

  // Connections.
  void fail_later(Link link, const std::string& how);
  void begin_opening(Connection& connection);
  bool is_up(Connection& connection);
  bool watch_openings();
  void close(Peer peer, const Error& error, bool tell_peer, bool tell_handler);
  void say_goodbye(Connection& connection);
  void force_close(Connection& connection);
  void end_requests(Connection& connection);
  bool is_gone(Connection& connection);
  bool reap_closing();
  bool run_events();
  bool run_finished();
  void flush_all();

  const Peer self_;
  const Bytes receives_max_;
  const Bytes unexpected_max_;
  const std::chrono::milliseconds connect_timeout_;
  const std::uint64_t process_;
  const AccessToken token_;
  const ProcessIdentity identity_;
  UcxWorker& network_;
  const UcxContext shared_memory_;
  std::unique_ptr<Port> network_port_;
  EventLoop* loop_ = nullptr;
  PeerFailureHandler handler_;

  Links links_;
  Mailbox<Incoming> mailbox_;
  std::map<Link, Inbound> inbound_;  ///< Order of arrival, also of links not open here yet.
  std::set<Link> overflowed_;        ///< Links not open here that sent more than is kept.
  std::int64_t posted_bytes_ = 0;
  EpochNumber epoch_ = 0;

  // Connections have no channel any more when they are destroyed (`shut_down`): what is declared
  // below, which callbacks of its worker use, is gone before them.
  std::map<Peer, std::unique_ptr<Connection>> open_;
  std::map<Peer, Error> lost_;  ///< Why a peer is not connected any more.
  std::list<std::unique_ptr<Connection>> closing_;
  std::list<std::unique_ptr<Connection>> parked_;  ///< UCX still holds requests of these.
  std::list<std::unique_ptr<Connection>> ended_;   ///< Events may still name their workers.
  std::vector<Channel*> channels_;                 ///< Of all connections above.
  std::map<Link, std::vector<std::byte>> channel_addresses_;  ///< Of links not open here yet.
  unsigned rounds_ = 0;                                       ///< Of progress.
  std::vector<std::function<void()>> events_;  ///< Recorded in callbacks, run after progress.
  std::vector<Finished> finished_;             ///< To be told to callers.
  std::vector<Finished> telling_;              ///< Being told; keeps its capacity.
};

}  // namespace troupe::transport
