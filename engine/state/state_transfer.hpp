// One device's part in bringing state to where a layout wants it: makes what begins from the seed,
// or reads it from a checkpoint, sends what others lack, receives what its own store lacks.
//
// Owned and called by one thread; only `wake` is called from the transport.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <vector>

#include "engine/setup/job_setup.hpp"
#include "engine/state/state_store.hpp"
#include "transport/transport.hpp"

namespace troupe::engine {

class StateTransfer {
 public:
  /// `moves`: all that concern the device's node, ascending, the same on both sides; the rest is
  /// ignored. The store has staged the layout. `store`, `setup` and `transport` outlive this.
  /// `checkpoint`: a folder from which comes what has no source; empty: the seed.
  /// Messages carry `generation`. `wake` may be called from any thread, and so may `came`, with the
  /// node from which a message has come: a shard takes as many as it has times 4 MiB, so that each
  /// shows in good time that the way to that node is none on which all is lost.
  StateTransfer(StateStore& store, const JobSetup& setup, const std::vector<StateMove>& moves,
                transport::Transport& transport, EpochNumber generation,
                std::filesystem::path checkpoint, std::function<void()> wake,
                std::function<void(NodeId from)> came = {});
  /// Withdraws receives that are still posted, so that the staged memory may be let go.
  ~StateTransfer();
  StateTransfer(const StateTransfer&) = delete;
  StateTransfer& operator=(const StateTransfer&) = delete;

  /// Goes on as far as it can without waiting: true when everything has come and gone out.
  /// What lies in the store does not change; what is staged is whole when this is true.
  ///
  /// Errors: as `Transport::send` and `receive`, `models::make_layer`, `Checkpoint::open` and
  /// `read`; internal: a move of a
  /// piece that this device does not have or did not ask for.
  Result<bool> advance();

 private:
  struct Message {
    StateMove move;
    std::uint64_t index = 0;  ///< Counts the moves between two devices.
  };
  struct Arriving {
    at::Tensor target;  ///< In the store.
    at::Tensor buffer;  ///< Where the bytes come: the target itself where it has no gaps.
    std::vector<transport::Operation> receives;  ///< That have not ended.
  };

  transport::Tag tag_of(const Message& message, std::uint64_t part) const;
  Status begin();
  Status make_from_seed();
  Status give(models::Layer& layer, const std::vector<ShardKey>& pieces);
  Status read_checkpoint();
  Status send(const Message& message);
  Status post_receives();
  std::vector<transport::Operation> receive(const Message& message, const at::Tensor& buffer);
  Result<bool> take_arrived();

  StateStore& store_;
  const JobSetup& setup_;
  transport::Transport& transport_;
  EpochNumber generation_;
  std::filesystem::path checkpoint_;
  std::function<void()> wake_;
  std::function<void(NodeId)> came_;
  bool begun_ = false;
  std::map<LayerId, std::vector<ShardKey>> begun_pieces_;  ///< From the seed or the checkpoint.
  std::vector<Message> copies_;                            ///< Within this device.
  std::vector<Message> outgoing_;
  std::vector<Message> incoming_;
  std::size_t next_receive_ = 0;
  std::int64_t posted_bytes_ = 0;
  std::vector<Arriving> arriving_;
  std::vector<transport::Operation> sends_;
};

}  // namespace troupe::engine
