#include "transport/inproc/inproc_transport.hpp"

#include <cstring>
#include <functional>
#include <utility>

#include "transport/failures.hpp"
#include "transport/inproc/factory.hpp"
#include "transport/process_number.hpp"

namespace troupe::transport {
namespace {

constexpr char kMagic[8] = {'i', 'n', 'p', 'r', 'o', 'c', '-', '1'};

/// Copies a matched message and completes both ends; without any lock.
void transfer(Peer sender, const Posted& receive, const ConstBuffer& data, const Completion& sent) {
  const bool fits = data.bytes == receive.buffer.bytes;
  if (fits && data.bytes > 0) std::memcpy(receive.buffer.data, data.data, data.bytes);
  sent.complete(Done{});
  receive.completion.complete(
      fits ? Status(Done{}) : size_mismatch(sender, receive.tag, data.bytes, receive.buffer.bytes));
}

}  // namespace

/// Completions and calls that must wait until the hub's lock is released.
class InprocTransport::Afterwards {
 public:
  void complete(const Completion& completion, Status status) {
    completions_.emplace_back(completion, std::move(status));
  }
  void complete(const Mailbox<Message>::Remains& remains, const Status& receives,
                const Status& sends) {
    for (const auto& receive : remains.receives) complete(receive.completion, receives);
    for (const auto& message : remains.messages) complete(message.completion, sends);
  }
  void call(const PeerFailureHandler& handler, Peer peer, const Error& error) {
    if (handler) calls_.push_back([handler, peer, error] { handler(peer, error, true); });
  }
  void run() {
    for (auto& [completion, status] : completions_) completion.complete(std::move(status));
    for (const auto& call : calls_) call();
  }

 private:
  std::vector<std::pair<Completion, Status>> completions_;
  std::vector<std::function<void()>> calls_;
};

std::shared_ptr<InprocHub> InprocHub::of_process() {
  static const auto hub = std::make_shared<InprocHub>();
  return hub;
}

Result<std::unique_ptr<Transport>> create_inproc(const TransportOptions& options) {
  auto hub = options.hub ? options.hub : InprocHub::of_process();
  return std::unique_ptr<Transport>(
      new InprocTransport(std::move(hub), options.self, options.receives_max));
}

InprocTransport::InprocTransport(std::shared_ptr<InprocHub> hub, Peer self, Bytes receives_max)
    : hub_(std::move(hub)),
      self_(self),
      receives_max_(receives_max),
      process_(make_process_number()) {
  const std::lock_guard lock(hub_->mutex_);
  hub_->transports_[process_] = this;
}

InprocTransport::~InprocTransport() {
  Afterwards afterwards;
  {
    const std::lock_guard lock(hub_->mutex_);
    const auto gone = peer_lost(self_, "is gone");
    for (const Peer peer : links_.peers()) sever(peer, shutting_down(), gone, afterwards);
    // Others may have connected to this transport without being connected from here.
    for (const auto& [process, other] : hub_->transports_) {
      const auto peer = other->links_.peer_of(process_);
      if (!peer) continue;
      const auto lost = peer_lost(*peer, "is gone");
      other->sever(*peer, lost, shutting_down(), afterwards);
      other->lost_.insert_or_assign(*peer, lost);
      afterwards.call(other->handler_, *peer, lost);
    }
    afterwards.complete(mailbox_.take_all(), shutting_down(), gone);
    hub_->transports_.erase(process_);
  }
  afterwards.run();
}

std::vector<std::byte> InprocTransport::address() const {
  std::vector<std::byte> address(sizeof kMagic + sizeof process_);
  std::memcpy(address.data(), kMagic, sizeof kMagic);
  std::memcpy(address.data() + sizeof kMagic, &process_, sizeof process_);
  return address;
}

Status InprocTransport::connect(Peer peer, std::span<const std::byte> address) {
  std::uint64_t process = 0;
  if (address.size() != sizeof kMagic + sizeof process ||
      std::memcmp(address.data(), kMagic, sizeof kMagic) != 0) {
    return Error{Errc::invalid_argument,
                 "the address of peer " + std::to_string(peer) + " is not one of backend inproc",
                 "", "use the same backend on all nodes"};
  }
  if (peer == self_) return Done{};
  std::memcpy(&process, address.data() + sizeof kMagic, sizeof process);
  const std::lock_guard lock(hub_->mutex_);
  if (!hub_->transports_.contains(process)) return peer_lost(peer, "is gone or in another hub");
  if (auto link = links_.open(peer, process); !link) return std::move(link).error();
  lost_.erase(peer);
  return Done{};
}

Result<Link> InprocTransport::incoming(Peer peer) const {
  if (peer == self_) return Link{process_, 0};
  if (const auto link = links_.find(peer)) return *link;
  const auto lost = lost_.find(peer);
  return lost == lost_.end() ? not_connected(peer) : lost->second;
}

Operation InprocTransport::send(Peer peer, const Tag& tag, ConstBuffer data) {
  Message message{tag, std::move(data), Completion::pending()};
  const auto operation = message.completion.operation();
  std::optional<Posted> receive;
  {
    const std::lock_guard lock(hub_->mutex_);
    if (tag.epoch < epoch_) return Operation(epoch_is_over(tag, epoch_));
    const auto link = incoming(peer);
    if (!link) return Operation(link.error());
    // A peer that is connected is in the hub: leaving it closes the connection.
    auto& target = *hub_->transports_.at(link.value().process);
    const Link ours{process_, link.value().session};
    const bool is_stale = peer != self_ && target.links_.standing(ours) == Links::Standing::stale;
    if (is_stale || tag.epoch < target.epoch_) return Operation(Done{});  // Nobody wants it.
    receive = target.mailbox_.match(ours, tag);
    if (!receive) {
      target.mailbox_.keep(ours, tag, std::move(message));
      return operation;
    }
    target.posted_bytes_ -= static_cast<std::int64_t>(receive->buffer.bytes);
  }
  transfer(self_, *receive, message.data, message.completion);
  return operation;
}

Operation InprocTransport::receive(Peer peer, const Tag& tag, MutableBuffer data) {
  std::optional<Message> message;
  std::optional<Operation> operation;
  Posted receive{tag, std::move(data), Completion()};
  {
    const std::lock_guard lock(hub_->mutex_);
    if (tag.epoch < epoch_) return Operation(epoch_is_over(tag, epoch_));
    const auto link = incoming(peer);
    if (!link) return Operation(link.error());
    const auto bytes = receive.buffer.bytes;
    if (posted_bytes_ + static_cast<std::int64_t>(bytes) > receives_max_.count()) {
      return Operation(too_many_receives(peer, tag, bytes, posted_bytes_, receives_max_));
    }
    receive.completion = withdrawable(link.value(), peer, tag);
    operation = receive.completion.operation();
    message = mailbox_.post(link.value(), receive);
    if (!message) posted_bytes_ += static_cast<std::int64_t>(bytes);
  }
  if (message) transfer(peer, receive, message->data, message->completion);
  return *operation;
}

Completion InprocTransport::withdrawable(Link link, Peer peer, const Tag& tag) const {
  // The operation may outlive this transport: it is looked up in the hub again.
  return Completion::pending([hub = std::weak_ptr(hub_), process = process_, link, peer,
                              tag](const Completion& completion) {
    const auto alive = hub.lock();
    if (!alive) return;
    {
      const std::lock_guard lock(alive->mutex_);
      const auto self = alive->transports_.find(process);
      if (self == alive->transports_.end()) return;
      auto& transport = *self->second;
      const auto receive = transport.mailbox_.withdraw(link, tag, completion);
      if (!receive) return;
      transport.posted_bytes_ -= static_cast<std::int64_t>(receive->buffer.bytes);
    }
    completion.complete(receive_cancelled(peer, tag));
  });
}

void InprocTransport::disconnect(Peer peer, Error why) {
  Afterwards afterwards;
  {
    const std::lock_guard lock(hub_->mutex_);
    lost_.erase(peer);
    if (!links_.find(peer)) return;
    sever(peer, why, peer_lost(self_, "has disconnected"), afterwards);
  }
  afterwards.run();
}

void InprocTransport::sever(Peer peer, const Error& error, const Error& error_there,
                            Afterwards& afterwards) {
  const auto theirs = *links_.close(peer);
  const Link ours{process_, theirs.session};
  auto& there = *hub_->transports_.at(theirs.process);
  afterwards.complete(take_link(theirs), error, error_there);
  afterwards.complete(there.take_link(ours), error_there, error);
  const auto peer_there = there.links_.peer_of(process_);
  if (peer_there && there.links_.find(*peer_there) == ours) {
    there.links_.close(*peer_there);
    there.lost_.insert_or_assign(*peer_there, error_there);
    afterwards.call(there.handler_, *peer_there, error_there);
  } else {
    there.links_.skip(ours);
  }
}

Mailbox<InprocTransport::Message>::Remains InprocTransport::take_link(Link link) {
  auto remains = mailbox_.take_link(link);
  posted_bytes_ -= remains.receive_bytes();
  return remains;
}

void InprocTransport::drop_older_than(EpochNumber epoch) {
  Afterwards afterwards;
  {
    const std::lock_guard lock(hub_->mutex_);
    if (epoch <= epoch_) return;
    epoch_ = epoch;
    // Own sends wait in the mailboxes of their receivers.
    const auto cancel_sends = [&](InprocTransport& there, Link ours) {
      for (const auto& message : there.mailbox_.take_messages_older_than(ours, epoch)) {
        afterwards.complete(message.completion, epoch_is_over(message.tag, epoch));
      }
    };
    cancel_sends(*this, {process_, 0});
    for (const Peer peer : links_.peers()) {
      const auto theirs = *links_.find(peer);
      cancel_sends(*hub_->transports_.at(theirs.process), {process_, theirs.session});
    }
    const auto remains = mailbox_.take_older_than(epoch);
    posted_bytes_ -= remains.receive_bytes();
    for (const auto& receive : remains.receives) {
      afterwards.complete(receive.completion, epoch_is_over(receive.tag, epoch));
    }
    // Their senders are done with them: nobody will ever want these bytes.
    for (const auto& message : remains.messages) afterwards.complete(message.completion, Done{});
  }
  afterwards.run();
}

void InprocTransport::on_peer_failure(PeerFailureHandler handler) {
  const std::lock_guard lock(hub_->mutex_);
  handler_ = std::move(handler);
}

}  // namespace troupe::transport
