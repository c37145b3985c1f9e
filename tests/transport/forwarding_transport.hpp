// Forwards everything to a transport that it owns: what fakes override one or two calls of.

#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/transport.hpp"

namespace troupe::transport::testing {

class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  Peer self() const override { return inner_->self(); }
  std::vector<std::byte> address() const override { return inner_->address(); }
  std::string remark_on(std::span<const std::byte> one,
                        std::span<const std::byte> other) const override {
    return inner_->remark_on(one, other);
  }
  bool takes(MemoryKind kind) const override { return inner_->takes(kind); }
  void prepare_thread(std::function<void()> call) override {
    inner_->prepare_thread(std::move(call));
  }
  Status connect(Peer peer, std::span<const std::byte> address) override {
    return inner_->connect(peer, address);
  }
  Operation send(Peer peer, const Tag& tag, ConstBuffer data) override {
    return inner_->send(peer, tag, std::move(data));
  }
  Operation receive(Peer peer, const Tag& tag, MutableBuffer data) override {
    return inner_->receive(peer, tag, std::move(data));
  }
  void disconnect(Peer peer, Error why) override { inner_->disconnect(peer, std::move(why)); }
  void drop_older_than(EpochNumber epoch) override { inner_->drop_older_than(epoch); }
  void on_peer_failure(PeerFailureHandler handler) override {
    inner_->on_peer_failure(std::move(handler));
  }

 private:
  std::unique_ptr<Transport> inner_;
};

}  // namespace troupe::transport::testing
