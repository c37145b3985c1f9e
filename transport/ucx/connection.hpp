// The inner types of `Messenger`, shared by its source files.

#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "transport/ucx/messenger.hpp"
#include "transport/ucx/opening.hpp"

namespace troupe::transport {

/// Ids of the active messages.
enum : unsigned { kMessageId = 1, kGoodbyeId = 2, kChannelId = 3 };

/// Precedes every message on the wire; one byte order per job.
struct Messenger::Header {
  AccessToken token{};        ///< The receiver's: it takes nothing without.
  std::uint64_t process = 0;  ///< Sender's link.
  std::uint32_t session = 0;
  EpochNumber epoch = 0;  ///< The tag.
  std::uint64_t step = 0;
  std::uint64_t index = 0;
  TagKind kind = TagKind::user;
  std::uint32_t reserved = 0;
  std::uint64_t sequence = 0;  ///< Counts the messages of the connection, from 0.

  Tag tag() const { return {epoch, kind, step, index}; }
  Link link() const { return {process, session}; }
};

/// A worker and whom its callbacks tell.
struct Messenger::Port {
  Messenger* messenger = nullptr;
  UcxWorker* worker = nullptr;
};

/// A worker of its own for the shared memory between this node and one peer (README: a queue that
/// several peers share falls silent for all when one of them dies while it writes).
struct Messenger::Channel {
  explicit Channel(UcxWorker own) : worker(std::move(own)) {}
  Port port;  // Before the worker, whose callbacks are given it until it has gone.
  UcxWorker worker;
};

/// A way to the peer: an endpoint of one worker.
struct Messenger::Path {
  ucp_ep_h endpoint = nullptr;
  ucs_status_ptr_t probe = nullptr;   ///< A flush that was begun with the network's endpoint.
  ucs_status_ptr_t flush = nullptr;   ///< Of the goodbye.
  ucs_status_ptr_t ending = nullptr;  ///< Of the endpoint.
};

/// What UCX is working on: a send, or the fetching of an offered message.
struct Messenger::Request {
  Header header;
  ConstBuffer data;               ///< Of a send.
  std::optional<Posted> receive;  ///< Of a fetch.
  Completion completion;
  Connection* connection = nullptr;
  bool told = false;        ///< The operation has ended, UCX has not.
  bool in_channel = false;  ///< Of the channel's worker, not of the network's.
  std::list<Request>::iterator self;
};

struct Messenger::Connection {
  Messenger* messenger = nullptr;
  Peer peer = -1;
  AccessToken token{};             ///< Of the peer, on messages that go.
  Link theirs;                     ///< On messages that come.
  Link ours;                       ///< On messages that go.
  std::vector<Path> paths;         ///< The network, then the channel; messages take the last.
  std::optional<Opening> opening;  ///< Until it is up, or for ever.
  std::uint64_t sent = 0;
  std::list<Request> requests;
  std::vector<std::byte> channel_address;  ///< Until it is offered to the peer.
  int watch = -1;                          ///< Descriptor of the peer's process.

  // Once it is closed:
  std::optional<Error> error;  ///< What its operations end with.
  bool tell_handler = false;
  bool was_up = true;                     ///< Before it was.
  std::vector<Incoming::Offered> offers;  ///< Nobody took them: released after the endpoints.
  bool forced = false;  ///< The endpoints are being closed; before, a goodbye leaves.
  std::chrono::steady_clock::time_point deadline;  ///< Of the present one of the two.

  // Last, hence destroyed first: as its worker goes UCX calls back with the requests that it still
  // holds, and what ends them reads all of the above.
  std::unique_ptr<Channel> channel;
};

}  // namespace troupe::transport
