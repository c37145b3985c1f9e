// Rows over NCCL: a device's lanes to and from others, each a communicator of two on a stream of
// its own, opened for a layout out of those of the layout before; and what moves on them.
//
// NCCL matches a lane's sends and receives in the order in which each end launches them, and has
// neither tags nor a way to take one back. So the receiver, which posts in the order of its list,
// gives each receive a turn and tells the sender; the sender launches in the order of turns, and
// tells the receiver, which launches then:
//
//   receiver                                      sender
//   receive: posts ──"turn 7"──────────────────>  send: waits for a turn, and for those before it
//   launches  <───────────────────"it comes"────  launches
//
// The words go over the transport, where a lost node shows. Neither end waits inside NCCL for one
// that is still computing: no kernel spins on a device, and a call that does not end hangs.
//
// One thread opens, sends, receives and gives up; `lose`, and the words, come from any.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/execution/loss_listeners.hpp"
#include "engine/execution/nccl_device.hpp"
#include "engine/execution/row_calls.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "scheduler/iteration/row_lanes.hpp"

namespace troupe::engine {

class NcclRows final : public RowCalls,
                       public LossListener,
                       public std::enable_shared_from_this<NcclRows> {
 public:
  explicit NcclRows(std::shared_ptr<NcclDevice> device);
  ~NcclRows() override;

  /// Opens the lanes of `device` (`row_lanes`) for a layout whose nodes are connected; all their
  /// devices do at about the same time. Blocks. An invalid device has none. Each lane has carried a
  /// byte then: NCCL connects two ranks when they first send, and until then a launch may wait for
  /// the other end's. Errors: as `NcclDevice::open`; of that byte as `NcclGroup::compare`.
  Status open(const ParallelPlan& plan, DeviceId device, EpochNumber generation);

  bool sends_to(DeviceId other) const override;
  bool receives_from(DeviceId other) const override;
  transport::Operation send(DeviceId to, const transport::Tag& tag, at::Tensor rows) override;
  Result<Coming> receive(DeviceId from, const transport::Tag& tag, at::IntArrayRef shape,
                         at::ScalarType type) override;
  void give_up() override;
  void lose(transport::Peer peer, const Error& why) override;

 private:
  /// A send or a receive.
  struct Call {
    transport::Tag tag;
    at::Tensor rows;
    transport::Completion completion = transport::Completion::pending();
    std::uint64_t turn = 0;   ///< Of a receive its own; of a send what the other end said.
    std::uint64_t heard = 0;  ///< Of a receive: the turn that comes.
    std::optional<transport::Operation> word;  ///< Of the other end, that it waits for.
  };
  struct Lane {
    DeviceSlot from, to;
    DeviceId other;  ///< At the other end.
    transport::Peer peer = -1;
    bool sends = false;        ///< This device is `from`.
    std::uint64_t posted = 0;  ///< Turns that were given.
    // Of the mutex.
    NcclSeat seat;
    std::uint64_t next = 0;                                ///< The turn to be launched.
    std::map<std::uint64_t, std::shared_ptr<Call>> ready;  ///< For their turns.
  };

  Status open_lane(const ParallelPlan& plan, const scheduler::RowLane& wanted, std::size_t place,
                   DeviceId device, EpochNumber generation,
                   const std::vector<std::shared_ptr<Lane>>& old);
  Status warm_up(Lane& lane);
  std::shared_ptr<Lane> find(DeviceId other, bool sends) const;
  transport::Operation begin(const std::shared_ptr<Lane>& lane, const std::shared_ptr<Call>& call);
  void await_word(const std::shared_ptr<Lane>& lane, const std::shared_ptr<Call>& call);
  void tell(const Lane& lane, const std::shared_ptr<Call>& call);
  void take_turn(const std::shared_ptr<Lane>& lane, const std::shared_ptr<Call>& call);
  static transport::Operation launch(Lane& lane, void* data, std::size_t bytes,
                                     std::shared_ptr<void> owner, transport::Deadline deadline);

  const std::shared_ptr<NcclDevice> device_;
  std::vector<std::shared_ptr<Call>> calls_;  ///< That may be under way.
  mutable std::mutex mutex_;                  ///< Of what follows, and of parts of lanes.
  std::vector<std::shared_ptr<Lane>> lanes_;
  std::map<transport::Peer, Error> lost_;  ///< Since the layout is being opened.
};

}  // namespace troupe::engine
