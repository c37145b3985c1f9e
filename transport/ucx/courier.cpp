// Connections: opening, failing, closing. Messages are in courier_messages.cpp.

#include "transport/ucx/courier.hpp"

#include <algorithm>
#include <string>

#include "transport/failures.hpp"
#include "transport/ucx/connection.hpp"
#include "transport/ucx/status.hpp"

namespace troupe::transport {
namespace {

using Clock = std::chrono::steady_clock;

/// How long a goodbye may take to leave. Reaching a live peer takes far less; a dead one never.
constexpr auto kGoodbyeTime = std::chrono::milliseconds(200);
/// How long a force-closed endpoint may keep its requests before their operations end anyway.
constexpr auto kCloseTime = std::chrono::milliseconds(700);
/// Rounds of progress for the last messages of a process that has ended.
constexpr int kLastRounds = 1000;
/// How long messages under way may take to leave when the transport is destroyed.
constexpr auto kFlushTime = std::chrono::milliseconds(300);

bool is_complete(ucs_status_ptr_t& request) {
  if (request == nullptr) return true;
  if (!UCS_PTR_IS_ERR(request)) {
    if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucp_request_free(request);
  }
  request = nullptr;
  return true;
}

}  // namespace

Courier::Courier(const TransportOptions& options, UcxWorker& worker, std::uint64_t process)
    : self_(options.self),
      receives_max_(options.receives_max),
      unexpected_max_(options.unexpected_max),
      process_(process),
      worker_(worker) {
  const std::pair<unsigned, ucp_am_recv_callback_t> handlers[] = {{kMessageId, on_message},
                                                                  {kGoodbyeId, on_goodbye}};
  for (const auto& [id, callback] : handlers) {
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = id;
    param.flags = UCP_AM_FLAG_WHOLE_MSG;
    param.cb = callback;
    param.arg = this;
    // Fails for a callback without the flag only.
    ucp_worker_set_am_recv_handler(worker_.handle(), &param);
  }
}

Courier::~Courier() = default;

Result<Link> Courier::incoming(Peer peer) const {
  if (peer == self_) return Link{process_, 0};
  if (const auto link = links_.find(peer)) return *link;
  return no_connection(peer);
}

Error Courier::no_connection(Peer peer) const {
  const auto lost = lost_.find(peer);
  return lost == lost_.end() ? not_connected(peer) : lost->second;
}

Status Courier::connect(Peer peer, const UcxAddress& address) {
  auto theirs = links_.open(peer, address.process);
  if (!theirs) return std::move(theirs).error();
  auto connection = std::make_unique<Connection>();
  connection->courier = this;
  connection->peer = peer;
  connection->theirs = theirs.value();
  connection->ours = {process_, theirs.value().session};
  if (auto status = open_endpoint(*connection, address.worker); !status) {
    links_.close(peer);
    return status;
  }
  lost_.erase(peer);
  watch_process(*connection, address.identity);
  open_[peer] = std::move(connection);
  if (overflowed_.erase(theirs.value()) > 0) {
    fail_later(theirs.value(), "sent more than is kept before this node had connected to it");
  }
  return Done{};
}

Status Courier::open_endpoint(Connection& connection, const std::vector<std::byte>& address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  // The only mode in which a peer's death ends requests and an endpoint can be force-closed.
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_endpoint_error, &connection};
  const auto status = ucp_ep_create(worker_.handle(), &params, &connection.endpoint);
  if (status == UCS_OK) return Done{};
  auto error = ucx_error("connecting to peer " + std::to_string(connection.peer), status);
  error.fix = "let both nodes use the same transports and network devices";
  return error;
}

void Courier::watch_process(Connection& connection, const ProcessIdentity& identity) {
  bool has_ended = false;
  connection.watch = open_process(identity, has_ended);
  if (has_ended) fail_later(connection.theirs, "is gone: its process has ended");
  if (connection.watch < 0) return;
  loop_->watch(connection.watch, [this, &connection, link = connection.theirs] {
    connection.watch = -1;  // The loop has closed it.
    // What it sent before it ended may still lie in shared memory: take that in first. Bounded,
    // since other peers go on sending.
    for (int round = 0; round < kLastRounds && progress(); ++round) {
    }
    fail_later(link, "is gone: its process has ended");
  });
}

void Courier::on_endpoint_error(void* argument, ucp_ep_h, ucs_status_t status) {
  auto& connection = *static_cast<Connection*>(argument);
  connection.courier->fail_later(connection.theirs, "is lost: " + reason_of(status));
}

void Courier::fail_later(Link link, const std::string& how) {
  events_.push_back([this, link, how] {
    if (const auto peer = links_.peer_of(link.process); peer && links_.find(*peer) == link) {
      close(*peer, peer_lost(*peer, how), false, true);
    }
  });
}

void Courier::disconnect(Peer peer, const Error& why) {
  close(peer, why, true, false);
  lost_.erase(peer);
}

void Courier::close(Peer peer, const Error& error, bool tell_peer, bool tell_handler) {
  const auto found = open_.find(peer);
  if (found == open_.end()) return;
  auto connection = std::move(found->second);
  open_.erase(found);
  links_.close(peer);
  if (tell_handler) lost_.insert_or_assign(peer, error);
  connection->error = error;
  connection->tell_handler = tell_handler;
  if (connection->watch >= 0) loop_->unwatch(connection->watch);

  forget_link(connection->theirs, error, connection.get());
  if (tell_peer) {
    say_goodbye(*connection);
    const ucp_request_param_t param{};
    connection->flush = ucp_ep_flush_nbx(connection->endpoint, &param);
    connection->deadline = Clock::now() + kGoodbyeTime;
  }
  closing_.push_back(std::move(connection));
  reap_closing();
}

void Courier::force_close(Connection& connection) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  connection.ending = ucp_ep_close_nbx(connection.endpoint, &param);
  connection.forced = true;
  for (auto* offer : std::exchange(connection.offers, {})) {
    ucp_am_data_release(worker_.handle(), offer);
  }
  connection.deadline = Clock::now() + kCloseTime;
}

bool Courier::is_gone(Connection& connection) {
  const bool flushed = is_complete(connection.flush);
  if (!connection.forced) {
    if (!flushed && Clock::now() < connection.deadline) return false;
    force_close(connection);
  }
  return is_complete(connection.flush) && is_complete(connection.ending) &&
         connection.requests.empty();
}

void Courier::end_requests(Connection& connection) {
  for (auto& request : connection.requests) {
    if (!request.told) tell(request, *connection.error);
  }
}

bool Courier::reap_closing() {
  bool any = false;
  const auto now = Clock::now();
  for (auto it = closing_.begin(); it != closing_.end();) {
    auto& connection = **it;
    const bool gone = is_gone(connection);
    if (!gone && (!connection.forced || now < connection.deadline)) {
      ++it;
      continue;
    }
    end_requests(connection);
    if (connection.tell_handler && handler_) {
      finished_.push_back({Completion(), Done{},
                           [handler = handler_, peer = connection.peer, error = *connection.error] {
                             handler(peer, error);
                           }});
    }
    if (!gone) parked_.push_back(std::move(*it));
    it = closing_.erase(it);
    any = true;
  }
  std::erase_if(parked_, [this](auto& connection) { return is_gone(*connection); });
  return any;
}

bool Courier::progress() {
  bool moved = worker_.progress();
  moved |= run_events();
  if (!closing_.empty()) moved |= reap_closing();
  moved |= run_finished();
  return moved;
}

bool Courier::run_events() {
  bool any = false;
  while (!events_.empty()) {
    any = true;
    for (const auto& event : std::exchange(events_, {})) event();
  }
  return any;
}

void Courier::flush_all() {
  std::vector<ucs_status_ptr_t> flushes;
  for (const auto& [peer, connection] : open_) {
    const ucp_request_param_t param{};
    flushes.push_back(ucp_ep_flush_nbx(connection->endpoint, &param));
  }
  const auto deadline = Clock::now() + kFlushTime;
  const auto all_done = [&] {
    std::erase_if(flushes, [](auto& request) { return is_complete(request); });
    return flushes.empty();
  };
  while (!all_done() && Clock::now() < deadline) worker_.progress();
  // Closing the endpoints ends the rest.
  for (auto& request : flushes) ucp_request_free(request);
}

void Courier::shut_down() {
  handler_ = nullptr;
  flush_all();
  while (!open_.empty()) close(open_.begin()->first, shutting_down(), true, false);
  const auto deadline = Clock::now() + kGoodbyeTime + kCloseTime;
  while (!closing_.empty() && Clock::now() < deadline) progress();
  for (auto& connection : closing_) end_requests(*connection);
  forget(mailbox_.take_all(), shutting_down(), nullptr);
  while (!inbound_.empty()) forget_link(inbound_.begin()->first, shutting_down());
  run_events();
  run_finished();
}

}  // namespace troupe::transport
