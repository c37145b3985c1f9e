// Connections: opening, failing, closing. Messages are in messenger_messages.cpp.

#include "transport/ucx/messenger.hpp"

#include <algorithm>
#include <sstream>
#include <string>

#include "transport/failures.hpp"
#include "transport/ucx/connection.hpp"
#include "transport/ucx/loss_words.hpp"

namespace troupe::transport {
namespace {

using Clock = std::chrono::steady_clock;

/// How long a goodbye may take to leave. Reaching a live peer takes far less; a dead one never.
constexpr auto kGoodbyeTime = std::chrono::milliseconds(200);
/// How long a force-closed endpoint may keep its requests before their operations end anyway.
constexpr auto kCloseTime = std::chrono::milliseconds(700);
/// The network is asked once in so many rounds of progress while there are channels.
constexpr unsigned kNetworkRounds = 8;
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

/// Null, and nothing to free, where it was complete at once.
bool has_succeeded(ucs_status_ptr_t& request) {
  if (UCS_PTR_IS_ERR(request)) return false;
  if (request != nullptr && ucp_request_check_status(request) != UCS_OK) return false;
  return is_complete(request);
}

std::string seconds_text(std::chrono::milliseconds time) {
  std::ostringstream text;
  text << std::chrono::duration<double>(time).count() << " s";
  return text.str();
}

}  // namespace

Messenger::Messenger(const TransportOptions& options, UcxWorker& network, UcxContext shared_memory,
                     const UcxAddress& self)
    : self_(options.self),
      receives_max_(options.receives_max),
      unexpected_max_(options.unexpected_max),
      connect_timeout_(options.ucx.connect_timeout),
      process_(self.process),
      token_(self.token),
      identity_(self.identity),
      network_(network),
      shared_memory_(std::move(shared_memory)),
      network_port_(std::make_unique<Port>(Port{this, &network})) {
  listen(*network_port_);
}

Messenger::~Messenger() = default;

Result<Link> Messenger::incoming(Peer peer) const {
  if (peer == self_) return Link{process_, 0};
  if (const auto link = links_.find(peer)) return *link;
  return no_connection(peer);
}

Error Messenger::no_connection(Peer peer) const {
  const auto lost = lost_.find(peer);
  return lost == lost_.end() ? not_connected(peer) : lost->second;
}

Status Messenger::connect(Peer peer, const UcxAddress& address) {
  auto theirs = links_.open(peer, address.process);
  if (!theirs) return std::move(theirs).error();
  auto connection = std::make_unique<Connection>();
  connection->messenger = this;
  connection->peer = peer;
  connection->token = address.token;
  connection->theirs = theirs.value();
  connection->ours = {process_, theirs.value().session};
  if (auto status = add_path(*connection, network_, address.worker); !status) {
    links_.close(peer);
    return status;
  }
  lost_.erase(peer);
  begin_opening(*connection);
  watch_process(*connection, address.identity);
  open_channel(*connection, address.identity);
  open_[peer] = std::move(connection);
  if (auto early = channel_addresses_.extract(theirs.value())) {
    take_channel(theirs.value(), early.mapped());
  }
  if (overflowed_.erase(theirs.value()) > 0) {
    fail_later(theirs.value(), "sent more than is kept before this node had connected to it");
  }
  return Done{};
}

Status Messenger::add_path(Connection& connection, const UcxWorker& worker,
                           const std::vector<std::byte>& address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  // The only mode in which a peer's death ends requests and an endpoint can be force-closed.
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_endpoint_error, &connection};
  Path path;
  const auto status = ucp_ep_create(worker.handle(), &params, &path.endpoint);
  if (status == UCS_OK) {
    connection.paths.push_back(path);
    return Done{};
  }
  return Error{
      Errc::transport_failed,
      "cannot connect to peer " + std::to_string(connection.peer) + ": " + loss_words(status), "",
      "let both nodes use the same transports and network devices; a process, the head too, that "
      "began while the network of its machine was down has to be started again"};
}

/// Says nothing to the peer that its process would hear: UCX connects by itself, and answers from
/// the peer's loop, which runs from its transport's beginning.
void Messenger::begin_opening(Connection& connection) {
  auto& network = connection.paths.front();
  const ucp_request_param_t param{};
  network.probe = ucp_ep_flush_nbx(network.endpoint, &param);
  connection.opening.emplace(Clock::now(), connect_timeout_);
  loop_->tick_soon();
}

bool Messenger::is_up(Connection& connection) {
  if (connection.opening && has_succeeded(connection.paths.front().probe))
    connection.opening.reset();
  return !connection.opening;
}

/// Ends those that are late. True where any is not up. What the system tells of a way that drops
/// everything comes after two minutes, and of one that the other side alone saw break never.
bool Messenger::watch_openings() {
  bool any = false;
  for (const auto& [peer, connection] : open_) {
    if (is_up(*connection)) continue;
    any = true;
    if (!connection->opening->is_late(Clock::now())) continue;
    fail_later(connection->theirs, "is out of reach: the connection to it did not come up within " +
                                       seconds_text(connect_timeout_));
  }
  return any;
}

void Messenger::watch_process(Connection& connection, const ProcessIdentity& identity) {
  bool has_ended = false;
  connection.watch = open_process(identity, has_ended);
  if (has_ended) fail_later(connection.theirs, "is gone: its process has ended");
  if (connection.watch < 0) return;
  loop_->watch(connection.watch, [this, &connection, link = connection.theirs] {
    connection.watch = -1;  // The loop has closed it.
    fail_later(link, "is gone: its process has ended");
  });
}

void Messenger::on_endpoint_error(void* argument, ucp_ep_h, ucs_status_t status) {
  auto& connection = *static_cast<Connection*>(argument);
  connection.messenger->fail_later(connection.theirs, "is lost: " + loss_words(status));
}

void Messenger::fail_later(Link link, const std::string& how) {
  events_.push_back([this, link, how] {
    if (const auto peer = links_.peer_of(link.process); peer && links_.find(*peer) == link) {
      drain(*open_.at(*peer));
      close(*peer, peer_lost(*peer, how), false, true);
    }
  });
}

void Messenger::disconnect(Peer peer, const Error& why) {
  close(peer, why, true, false);
  lost_.erase(peer);
}

void Messenger::close(Peer peer, const Error& error, bool tell_peer, bool tell_handler) {
  const auto found = open_.find(peer);
  if (found == open_.end()) return;
  auto connection = std::move(found->second);
  open_.erase(found);
  links_.close(peer);
  if (tell_handler) lost_.insert_or_assign(peer, error);
  connection->error = error;
  connection->tell_handler = tell_handler;
  connection->was_up = is_up(*connection);
  if (connection->watch >= 0) loop_->unwatch(connection->watch);

  forget_link(connection->theirs, error, connection.get());
  if (tell_peer) {
    say_goodbye(*connection);
    const ucp_request_param_t param{};
    for (auto& path : connection->paths) path.flush = ucp_ep_flush_nbx(path.endpoint, &param);
    connection->deadline = Clock::now() + kGoodbyeTime;
  }
  closing_.push_back(std::move(connection));
  reap_closing();
  loop_->tick_soon();
}

void Messenger::force_close(Connection& connection) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  for (auto& path : connection.paths) path.ending = ucp_ep_close_nbx(path.endpoint, &param);
  connection.forced = true;
  for (const auto& offer : std::exchange(connection.offers, {})) {
    ucp_am_data_release(offer.worker, offer.description);
  }
  connection.deadline = Clock::now() + kCloseTime;
}

bool Messenger::is_gone(Connection& connection) {
  const auto all_complete = [&connection](auto request) {
    int under_way = 0;
    for (auto& path : connection.paths) under_way += is_complete(path.*request) ? 0 : 1;
    return under_way == 0;
  };
  const bool flushed = all_complete(&Path::flush);
  if (!connection.forced) {
    if (!flushed && Clock::now() < connection.deadline) return false;
    force_close(connection);
  }
  return all_complete(&Path::probe) && all_complete(&Path::flush) && all_complete(&Path::ending) &&
         connection.requests.empty();
}

/// Of a force-closed connection that UCX keeps for long. What waits for room in the full queue of a
/// peer that reads no more would wait for as long as the worker lives, also to be given up (1.13).
void Messenger::end_channel(Connection& connection) {
  if (!connection.channel) return;
  for (; connection.paths.size() > 1; connection.paths.pop_back()) {
    auto& path = connection.paths.back();
    for (auto* request : {&path.flush, &path.ending}) {
      if (!is_complete(*request)) ucp_request_free(*request);
    }
  }
  close_channel(connection);
  // Some were called back just now; for the others nobody is left who could.
  connection.requests.remove_if([](const Request& request) { return request.in_channel; });
}

void Messenger::end_requests(Connection& connection) {
  for (auto& request : connection.requests) {
    if (!request.told) tell(request, *connection.error);
  }
}

bool Messenger::reap_closing() {
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
                           [handler = handler_, peer = connection.peer, error = *connection.error,
                            was_up = connection.was_up] { handler(peer, error, was_up); }});
    }
    auto& next = gone ? ended_ : parked_;
    next.splice(next.end(), closing_, it++);
    any = true;
  }
  for (auto it = parked_.begin(); it != parked_.end();) {
    const auto parked = it++;
    if (is_gone(**parked)) ended_.splice(ended_.end(), parked_, parked);
  }
  return any;
}

bool Messenger::tick() {
  reap_closing();
  const bool any_opens = watch_openings();
  return any_opens || !closing_.empty() || !parked_.empty();
}

bool Messenger::progress() {
  bool moved = false;
  for (auto* channel : channels_) moved |= channel->worker.progress();
  // Asking the network costs system calls, a channel costs a look.
  if (channels_.empty() || rounds_++ % kNetworkRounds == 0) moved |= network_.progress();
  moved |= run_events();
  if (!closing_.empty()) moved |= reap_closing();
  moved |= run_finished();
  if (events_.empty()) {
    for (auto& connection : ended_) close_channel(*connection);
    ended_.clear();
    for (auto& connection : parked_) end_channel(*connection);
  }
  return moved;
}

bool Messenger::expects_more() const {
  return std::ranges::any_of(open_,
                             [](const auto& entry) { return !entry.second->requests.empty(); });
}

bool Messenger::arm() {
  rounds_ = 0;  // What wakes the loop may be the network.
  for (auto* channel : channels_) {
    if (!channel->worker.arm()) return false;
  }
  return network_.arm();
}

bool Messenger::run_events() {
  bool any = false;
  while (!events_.empty()) {
    any = true;
    for (const auto& event : std::exchange(events_, {})) event();
  }
  return any;
}

void Messenger::flush_all() {
  std::vector<ucs_status_ptr_t> flushes;
  for (const auto& [peer, connection] : open_) {
    const ucp_request_param_t param{};
    for (const auto& path : connection->paths) {
      flushes.push_back(ucp_ep_flush_nbx(path.endpoint, &param));
    }
  }
  const auto deadline = Clock::now() + kFlushTime;
  const auto all_done = [&] {
    std::erase_if(flushes, [](auto& request) { return is_complete(request); });
    return flushes.empty();
  };
  while (!all_done() && Clock::now() < deadline) {
    network_.progress();
    for (auto* channel : channels_) channel->worker.progress();
  }
  // Closing the endpoints ends the rest.
  for (auto& request : flushes) ucp_request_free(request);
}

void Messenger::shut_down() {
  handler_ = nullptr;
  flush_all();
  while (!open_.empty()) close(open_.begin()->first, shutting_down(), true, false);
  const auto deadline = Clock::now() + kGoodbyeTime + kCloseTime;
  while (!closing_.empty() && Clock::now() < deadline) progress();
  for (auto& connection : closing_) end_requests(*connection);
  run_events();  // They may name workers of channels.
  // What UCX holds for full queues is called back as these go: while all of this is still there.
  for (auto* list : {&closing_, &parked_, &ended_})
    for (auto& connection : *list) end_channel(*connection);
  forget(mailbox_.take_all(), shutting_down(), nullptr);
  while (!inbound_.empty()) forget_link(inbound_.begin()->first, shutting_down());
  run_events();
  run_finished();
}

}  // namespace troupe::transport
