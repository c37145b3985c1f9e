// Sends tensors of a device whose memory a transport does not reach: piece by piece through a ring
// of host memory, so that a piece is copied while the one before is on its way, and no message
// takes host memory of its own.
//
// A place of the ring is taken for a receiver that has said its word alone, which is that it has
// posted for all pieces: then every piece leaves, and places come back. Without that, messages that
// nobody takes yet could fill the ring while another one is waited for.
//
// Where the transport reads the device's memory pieces leave from there, without a copy: to other
// nodes, as to its own it moves bytes by the processor. Receivers see no difference.
//
// Owned by a mailbox and called by its thread; only `wake` is called from others.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "engine/execution/device.hpp"
#include "engine/execution/pinned_ring.hpp"
#include "runtime/vocabulary/result.hpp"
#include "transport/transport.hpp"

namespace troupe::engine {

/// Of a message's piece, counted from 0. Both ends may be devices of one node, and a step that is
/// given up may leave pieces behind: each has its own. REQUIRES: index < 2^48, number < 2^15.
transport::Tag piece_tag(transport::Tag tag, std::int64_t number);

/// Of the word that comes from a message's receiver when it has posted for all pieces.
transport::Tag word_tag(transport::Tag tag);

/// How a flat tensor is cut; at least one piece. Pure.
struct PieceCut {
  std::int64_t elements = 0;  ///< Of a piece; the last one may have fewer.
  std::int64_t pieces = 1;
};
PieceCut cut_of(const at::Tensor& tensor, const Staging& staging);

/// A piece of a flat tensor.
at::Tensor piece_of(const at::Tensor& flat, const PieceCut& cut, std::int64_t number);

class StagedSends {
 public:
  /// Holds `staging.pieces` pieces of host memory at most, and as many bytes on the device for
  /// receivers that have not posted; what is beyond that waits for them in host memory of its own.
  StagedSends(transport::Transport& transport, Device& device, Staging staging,
              std::function<void()> wake);

  /// `tensor`: of the device, where its work has completed, or host memory (`in_host`). Contiguous.
  void send(const transport::Tag& tag, transport::Peer to, const at::Tensor& tensor, bool in_host);

  /// Begins what can begin; adds what the transport has been given to `sent`. Returns why something
  /// of it will not be: a receiver that is lost.
  Status move_on(std::vector<transport::Operation>& sent);

  /// The copy that failed, if any: of a device that is lost, more often than not.
  std::shared_ptr<const Launch> failed_copy() const { return failed_copy_; }

  /// A copy that has not completed, if any: the oldest of pieces, else one that makes room.
  std::shared_ptr<const Launch> copy_under_way() const;

  /// Forgets messages whose receivers are lost.
  void forget_lost();

  /// Forgets everything. REQUIRES: no copy is under way (`Device::drop`), or nobody minds.
  void clear();

  /// Nothing waits for a receiver or a copy any more.
  bool empty() const { return leaving_.empty() && pieces_.empty(); }

 private:
  struct Leaving {
    transport::Tag tag;
    transport::Peer to = -1;
    at::Tensor flat;
    PieceCut cut;
    transport::Operation word;
    bool in_host = false;
    std::shared_ptr<const Launch> moves;  ///< To host memory of its own, where `flat` is then.
    std::int64_t begun = 0;               ///< Pieces.
  };
  struct Piece {
    transport::Tag tag;
    transport::Peer to = -1;
    PinnedRing::Place place;
    std::size_t bytes = 0;
    std::shared_ptr<const Launch> copy;
  };

  bool leaves_as_it_is(const Leaving& message) const;
  void move_to_host(Leaving& message);
  Status begin_pieces(Leaving& message, std::vector<transport::Operation>& sent);
  void give(transport::Peer to, const transport::Tag& tag, transport::ConstBuffer piece,
            std::vector<transport::Operation>& sent);
  bool has_copied(const std::shared_ptr<const Launch>& copy);

  transport::Transport& transport_;
  Device& device_;
  const Staging staging_;
  std::function<void()> wake_;
  const bool reads_device_;  ///< The transport does.
  PinnedRing ring_;
  std::deque<Leaving> leaving_;
  std::deque<Piece> pieces_;  ///< That are copied, in order.
  std::shared_ptr<const Launch> failed_copy_;
};

}  // namespace troupe::engine
