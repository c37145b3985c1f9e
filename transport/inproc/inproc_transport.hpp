// The backend `inproc`: one copy from the sender's buffer to the receiver's, in the thread that
// comes second. No thread of its own; callbacks run in the calling threads.
//
// Thread-safe: everything below `hub_` is guarded by the hub's mutex. Nothing is completed and no
// byte is copied while it is held.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/inproc/hub.hpp"
#include "transport/links.hpp"
#include "transport/mailbox.hpp"
#include "transport/registry.hpp"
#include "transport/transport.hpp"

namespace troupe::transport {

class InprocTransport final : public Transport {
 public:
  InprocTransport(std::shared_ptr<InprocHub> hub, Peer self, Bytes receives_max);
  ~InprocTransport() override;

  Peer self() const override { return self_; }
  std::vector<std::byte> address() const override;
  Status connect(Peer peer, std::span<const std::byte> address) override;
  Operation send(Peer peer, const Tag& tag, ConstBuffer data) override;
  Operation receive(Peer peer, const Tag& tag, MutableBuffer data) override;
  void disconnect(Peer peer, Error why) override;
  void drop_older_than(EpochNumber epoch) override;
  void on_peer_failure(PeerFailureHandler handler) override;

 private:
  /// A message that waits: still in the sender's buffer.
  struct Message {
    Tag tag;
    ConstBuffer data;
    Completion completion;
    std::int64_t copied_bytes() const { return 0; }
  };
  class Afterwards;

  /// The link on which the peer's messages arrive here. Errors: not_found.
  Result<Link> incoming(Peer peer) const;
  /// A completion whose operation can be withdrawn.
  Completion withdrawable(Link link, Peer peer, const Tag& tag) const;
  /// Ends the connection to `peer` on both sides: operations here fail with `error`, those of the
  /// other side with `error_there`, and its failure handler hears of it. REQUIRES: connected.
  void sever(Peer peer, const Error& error, const Error& error_there, Afterwards& afterwards);
  Mailbox<Message>::Remains take_link(Link link);

  const std::shared_ptr<InprocHub> hub_;
  const Peer self_;
  const Bytes receives_max_;
  const std::uint64_t process_;

  Links links_;
  std::map<Peer, Error> lost_;  ///< Why a peer is not connected any more.
  Mailbox<Message> mailbox_;
  std::int64_t posted_bytes_ = 0;
  EpochNumber epoch_ = 0;
  PeerFailureHandler handler_;
};

}  // namespace troupe::transport
