// A transport one of whose receives fails, as that of a peer that vanished.

#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "transport/transport.hpp"

namespace troupe::engine {

class FailingTransport final : public transport::Transport {
 public:
  /// `receives` counts those of all transports that share it; number `failing` fails at once.
  FailingTransport(transport::Transport& inner, int& receives, std::optional<int> failing)
      : inner_(inner), receives_(receives), failing_(failing) {}

  transport::Peer self() const override { return inner_.self(); }
  std::vector<std::byte> address() const override { return inner_.address(); }
  Status connect(transport::Peer peer, std::span<const std::byte> address) override {
    return inner_.connect(peer, address);
  }
  transport::Operation send(transport::Peer peer, const transport::Tag& tag,
                            transport::ConstBuffer data) override {
    return inner_.send(peer, tag, std::move(data));
  }
  transport::Operation receive(transport::Peer peer, const transport::Tag& tag,
                               transport::MutableBuffer data) override {
    if (failing_ == receives_++)
      return transport::Operation(Error{Errc::transport_failed, "the peer vanished", {}, {}});
    return inner_.receive(peer, tag, std::move(data));
  }
  void disconnect(transport::Peer peer, Error why) override {
    inner_.disconnect(peer, std::move(why));
  }
  void drop_older_than(EpochNumber epoch) override { inner_.drop_older_than(epoch); }
  void on_peer_failure(transport::PeerFailureHandler handler) override {
    inner_.on_peer_failure(std::move(handler));
  }

 private:
  transport::Transport& inner_;
  int& receives_;
  std::optional<int> failing_;
};

/// A transport whose sends arrive, but end only when they are told to: by `fail_sends`.
class LateTransport final : public transport::Transport {
 public:
  explicit LateTransport(std::unique_ptr<transport::Transport> inner) : inner_(std::move(inner)) {}

  transport::Peer self() const override { return inner_->self(); }
  std::vector<std::byte> address() const override { return inner_->address(); }
  Status connect(transport::Peer peer, std::span<const std::byte> address) override {
    return inner_->connect(peer, address);
  }
  transport::Operation send(transport::Peer peer, const transport::Tag& tag,
                            transport::ConstBuffer data) override {
    inner_->send(peer, tag, std::move(data));
    pending_.push_back(transport::Completion::pending());
    return pending_.back().operation();
  }
  transport::Operation receive(transport::Peer peer, const transport::Tag& tag,
                               transport::MutableBuffer data) override {
    return inner_->receive(peer, tag, std::move(data));
  }
  void disconnect(transport::Peer peer, Error why) override {
    inner_->disconnect(peer, std::move(why));
  }
  void drop_older_than(EpochNumber epoch) override { inner_->drop_older_than(epoch); }
  void on_peer_failure(transport::PeerFailureHandler handler) override {
    inner_->on_peer_failure(std::move(handler));
  }

  void fail_sends() {
    for (const auto& send : pending_)
      send.complete(Error{Errc::transport_failed, "the peer vanished", {}, {}});
    pending_.clear();
  }

 private:
  std::unique_ptr<transport::Transport> inner_;
  std::vector<transport::Completion> pending_;
};

}  // namespace troupe::engine
