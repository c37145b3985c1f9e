// Messages: sending, meeting their receives, fetching. Connections are in messenger.cpp.

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "transport/failures.hpp"
#include "transport/ucx/connection.hpp"
#include "transport/ucx/loss_words.hpp"
#include "transport/ucx/memory_kinds.hpp"

namespace troupe::transport {

void Messenger::send(Peer peer, const Tag& tag, ConstBuffer data, const Completion& completion) {
  if (tag.epoch < epoch_) return complete(completion, epoch_is_over(tag, epoch_));
  if (peer == self_) return send_to_self(tag, std::move(data), completion);
  const auto found = open_.find(peer);
  if (found == open_.end()) return complete(completion, no_connection(peer));
  auto& connection = *found->second;
  offer_channel(connection);
  auto& request = add_request(connection);
  auto& header = request.header;
  header.epoch = tag.epoch;
  header.step = tag.step;
  header.index = tag.index;
  header.kind = tag.kind;
  header.sequence = connection.sent++;
  request.data = std::move(data);
  request.completion = completion;
  start(request, kMessageId, connection.paths.back().endpoint);
}

void Messenger::say_goodbye(Connection& connection) {
  auto& request = add_request(connection);
  request.header.sequence = connection.sent++;
  request.told = true;  // Nobody waits for it.
  start(request, kGoodbyeId, connection.paths.back().endpoint);
}

Messenger::Request& Messenger::add_request(Connection& connection) {
  auto& request = connection.requests.emplace_back();
  request.connection = &connection;
  request.self = std::prev(connection.requests.end());
  request.header.token = connection.token;
  request.header.process = connection.ours.process;
  request.header.session = connection.ours.session;
  return request;
}

void Messenger::start(Request& request, unsigned id, ucp_ep_h endpoint) {
  request.in_channel = endpoint != request.connection->paths.front().endpoint;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_sent;
  param.user_data = &request;
  if (request.data.memory != MemoryKind::host) {  // Of the host's it finds out by itself.
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.memory_type = memory_type(request.data.memory);
  }
  const auto status = ucp_am_send_nbx(endpoint, id, &request.header, sizeof request.header,
                                      request.data.data, request.data.bytes, &param);
  // Otherwise `on_sent` tells.
  if (status == nullptr || UCS_PTR_IS_ERR(status)) finish(request, UCS_PTR_STATUS(status));
}

void Messenger::send_to_self(const Tag& tag, ConstBuffer data, const Completion& completion) {
  const Link link{process_, 0};
  Incoming message{tag, data.bytes, Incoming::Local{std::move(data), completion}};
  if (auto receive = mailbox_.match(link, tag)) {
    hand_over(link, *receive, std::move(message));
  } else {
    mailbox_.keep(link, tag, std::move(message));
  }
}

void Messenger::receive(Peer peer, const Tag& tag, MutableBuffer data,
                        const Completion& completion) {
  if (tag.epoch < epoch_) return complete(completion, epoch_is_over(tag, epoch_));
  const auto link = incoming(peer);
  if (!link) return complete(completion, link.error());
  const auto bytes = static_cast<std::int64_t>(data.bytes);
  if (posted_bytes_ + bytes > receives_max_.count()) {
    return complete(completion,
                    too_many_receives(peer, tag, data.bytes, posted_bytes_, receives_max_));
  }
  posted_bytes_ += bytes;
  Posted receive{tag, std::move(data), completion};
  if (auto message = mailbox_.post(link.value(), receive)) {
    hand_over(link.value(), receive, std::move(*message));
  }
}

void Messenger::withdraw(Peer peer, const Tag& tag, const Completion& completion) {
  const auto link = incoming(peer);
  if (!link) return;
  if (const auto receive = mailbox_.withdraw(link.value(), tag, completion)) {
    complete_receive(*receive, receive_cancelled(peer, tag));
  }
}

void Messenger::drop_older_than(EpochNumber epoch) {
  if (epoch <= epoch_) return;
  epoch_ = epoch;
  for (auto& message : mailbox_.take_messages_older_than({process_, 0}, epoch)) {
    discard(message, epoch_is_over(message.tag, epoch));
  }
  auto remains = mailbox_.take_older_than(epoch);
  for (const auto& receive : remains.receives) {
    complete_receive(receive, epoch_is_over(receive.tag, epoch));
  }
  for (auto& message : remains.messages) discard(message, Done{});
  for (const auto& [peer, connection] : open_) {
    for (auto& request : connection->requests) {
      // A fetch is bounded by the connection and ends soon; a send may wait for ever.
      if (request.told || request.receive || request.header.epoch >= epoch) continue;
      request.told = true;
      complete(request.completion, epoch_is_over(request.header.tag(), epoch));
    }
  }
}

std::optional<Messenger::Header> Messenger::read_header(const void* bytes, std::size_t size) const {
  Header header;
  if (size != sizeof header) return {};  // Not from a transport of this version.
  std::memcpy(&header, bytes, sizeof header);
  if (header.token != token_) return {};
  return header;
}

ucs_status_t Messenger::on_message(void* argument, const void* raw_header, std::size_t header_bytes,
                                   void* data, std::size_t bytes,
                                   const ucp_am_recv_param_t* param) {
  const auto& port = *static_cast<Port*>(argument);
  auto& messenger = *port.messenger;
  const auto header = messenger.read_header(raw_header, header_bytes);
  if (!header) return UCS_OK;  // UCX lets it go.
  const auto link = header->link();
  const auto standing = messenger.links_.standing(link);
  const bool is_offer = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  const Incoming::Offered offer{data, port.worker->handle()};
  if (standing == Links::Standing::stale) {
    // In progress: UCX keeps the offer for us. Otherwise it drops it and tells the sender "done".
    return is_offer && messenger.keep_until_closed(link, offer) ? UCS_INPROGRESS : UCS_OK;
  }
  if (standing == Links::Standing::newer) {
    const auto peer = messenger.links_.peer_of(link.process);
    messenger.fail_later(*messenger.links_.find(*peer), "has left for a new connection");
  }
  Incoming message{header->tag(), bytes, Incoming::Seen{data}};
  if (is_offer) message.form = offer;
  messenger.take_in(link, header->sequence, std::move(message));
  return is_offer ? UCS_INPROGRESS : UCS_OK;
}

ucs_status_t Messenger::on_goodbye(void* argument, const void* raw_header, std::size_t header_bytes,
                                   void*, std::size_t, const ucp_am_recv_param_t*) {
  auto& messenger = *static_cast<Port*>(argument)->messenger;
  const auto header = messenger.read_header(raw_header, header_bytes);
  if (!header) return UCS_OK;
  const auto link = header->link();
  if (messenger.links_.standing(link) == Links::Standing::stale) return UCS_OK;
  // In its turn: it may have come another way than the messages before it.
  messenger.take_in(link, header->sequence, {Tag{}, 0, Incoming::Goodbye{}});
  return UCS_OK;
}

void Messenger::take_goodbye(Link link) {
  if (links_.standing(link) == Links::Standing::open) return fail_later(link, "has disconnected");
  events_.push_back([this, link] {
    links_.skip(link);
    forget_link(link, shutting_down());
  });
}

void Messenger::take_in(Link link, std::uint64_t sequence, Incoming message) {
  auto& inbound = inbound_[link];
  if (!inbound.is_next(sequence)) {
    message.keep_bytes();
    inbound.park(sequence, std::move(message));
    return;
  }
  deliver(link, std::move(message));
  while (auto next = inbound.next()) deliver(link, std::move(*next));
}

void Messenger::deliver(Link link, Incoming message) {
  if (std::holds_alternative<Incoming::Goodbye>(message.form)) return take_goodbye(link);
  if (message.tag.epoch < epoch_) return discard(message, Done{});
  if (const auto receive = mailbox_.match(link, message.tag)) {
    return hand_over(link, *receive, std::move(message));
  }
  message.keep_bytes();
  const auto tag = message.tag;
  mailbox_.keep(link, tag, std::move(message));
  if (mailbox_.copied_bytes() > unexpected_max_.count()) overflow(link);
}

void Messenger::overflow(Link link) {
  if (links_.standing(link) == Links::Standing::open) {
    fail_later(link, "sends more than is kept for receives that are not posted (" +
                         std::to_string(unexpected_max_.count()) + " bytes)");
  } else if (overflowed_.insert(link).second) {
    events_.push_back([this, link] { forget_link(link, shutting_down()); });
  }
}

void Messenger::hand_over(Link link, const Posted& receive, Incoming message) {
  if (message.bytes != receive.buffer.bytes) {
    const auto peer = links_.peer_of(link.process).value_or(self_);
    complete_receive(receive,
                     size_mismatch(peer, receive.tag, message.bytes, receive.buffer.bytes));
    return discard(message, Done{});
  }
  if (const auto* offer = std::get_if<Incoming::Offered>(&message.form)) {
    // Not now: this may run inside UCX's callback, which still owns the offer.
    events_.push_back([this, link, receive, offer = *offer] { fetch(link, receive, offer); });
    return;
  }
  if (message.bytes > 0) std::memcpy(receive.buffer.data, message.data(), message.bytes);
  complete_receive(receive, Done{});
  discard(message, Done{});
}

void Messenger::fetch(Link link, const Posted& receive, const Incoming::Offered& offer) {
  const auto peer = links_.peer_of(link.process);
  if (!peer || links_.find(*peer) != link) {  // Closed since the message was handed over.
    if (!keep_until_closed(link, offer)) ucp_am_data_release(offer.worker, offer.description);
    return complete_receive(receive, peer_lost(peer.value_or(-1), "is lost"));
  }
  auto& request = add_request(*open_.at(*peer));
  request.receive = receive;
  request.in_channel = offer.worker != network_.handle();
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = on_fetched;
  param.user_data = &request;
  const auto status = ucp_am_recv_data_nbx(offer.worker, offer.description, receive.buffer.data,
                                           receive.buffer.bytes, &param);
  if (status == nullptr || UCS_PTR_IS_ERR(status)) finish(request, UCS_PTR_STATUS(status));
}

void Messenger::on_sent(void* handle, ucs_status_t status, void* user_data) {
  auto& request = *static_cast<Request*>(user_data);
  request.connection->messenger->finish(request, status);
  ucp_request_free(handle);
}

void Messenger::on_fetched(void* handle, ucs_status_t status, std::size_t, void* user_data) {
  on_sent(handle, status, user_data);
}

void Messenger::finish(Request& request, ucs_status_t status) {
  auto& connection = *request.connection;
  if (status != UCS_OK && !connection.error) {
    fail_later(connection.theirs, "is lost: " + loss_words(status));
  }
  if (!request.told) {
    // What ends after the connection was closed has failed, even if the bytes still made it.
    Status outcome = Done{};
    if (connection.error) {
      outcome = *connection.error;
    } else if (status != UCS_OK) {
      outcome = peer_lost(connection.peer, "is lost: " + loss_words(status));
    }
    tell(request, std::move(outcome));
  }
  connection.requests.erase(request.self);
}

void Messenger::tell(Request& request, Status outcome) {
  request.told = true;
  if (request.receive) {
    complete_receive(*request.receive, std::move(outcome));
  } else {
    complete(request.completion, std::move(outcome));
  }
}

bool Messenger::keep_until_closed(Link link, const Incoming::Offered& offer) {
  const auto found = std::ranges::find_if(closing_, [link](const auto& connection) {
    return connection->theirs == link && !connection->forced;
  });
  if (found == closing_.end()) return false;
  (*found)->offers.push_back(offer);
  return true;
}

void Messenger::discard(Incoming& message, const Status& local_send, Connection* closing) {
  if (const auto* offer = std::get_if<Incoming::Offered>(&message.form)) {
    if (closing) return closing->offers.push_back(*offer);
    // Tells the sender that it is done. Later, for the same reason as in `hand_over`.
    events_.push_back([offer = *offer] { ucp_am_data_release(offer.worker, offer.description); });
  } else if (const auto* local = std::get_if<Incoming::Local>(&message.form)) {
    complete(local->sent, local_send);
  }
}

void Messenger::forget_link(Link link, const Error& error, Connection* closing) {
  channel_addresses_.erase(link);
  forget(mailbox_.take_link(link), error, closing);
  const auto found = inbound_.find(link);
  if (found == inbound_.end()) return;
  for (auto& [sequence, message] : found->second.take_all()) {
    discard(message, error, closing);
  }
  inbound_.erase(found);
}

void Messenger::forget(Mailbox<Incoming>::Remains remains, const Error& error,
                       Connection* closing) {
  for (const auto& receive : remains.receives) complete_receive(receive, error);
  for (auto& message : remains.messages) discard(message, error, closing);
}

void Messenger::complete_receive(const Posted& receive, Status status) {
  posted_bytes_ -= static_cast<std::int64_t>(receive.buffer.bytes);
  complete(receive.completion, std::move(status));
}

void Messenger::complete(const Completion& completion, Status status) {
  finished_.push_back({completion, std::move(status), nullptr});
}

bool Messenger::run_finished() {
  const bool any = !finished_.empty();
  telling_.swap(finished_);
  for (auto& news : telling_) {
    news.completion.complete(std::move(news.status));
    if (news.call) news.call();
  }
  telling_.clear();
  return any;
}

}  // namespace troupe::transport
