// A device's groups over NCCL for the sums of its gradients: opened for a layout, out of those of
// the layout before, one for each set of holders; and the sums that run in them.
//
// One thread opens, enters and looks; `lose` comes from any thread, also the transport's.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/execution/loss_listeners.hpp"
#include "engine/execution/nccl_device.hpp"
#include "engine/execution/sum_calls.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "transport/nccl/nccl_group.hpp"

namespace troupe::engine {

class NcclSums final : public SumCalls, public LossListener {
 public:
  explicit NcclSums(std::shared_ptr<NcclDevice> device);
  ~NcclSums() override;

  /// Opens the groups in which `device` calls, for a layout whose nodes are connected; all their
  /// devices do at about the same time. Groups of a layout before are taken over where their
  /// holders are a part of theirs, and given up else. Blocks. Each group has summed what nobody
  /// reads then, before the next one is opened: NCCL connects its ranks with their first sums.
  /// Nothing of NCCL is needed for a layout without calls, or a device without a part in them (an
  /// invalid one).
  /// Errors: as `NcclDevice::open`; of the sums that nobody reads as `NcclGroup::compare`.
  Status open(const ParallelPlan& plan, DeviceId device, EpochNumber generation);

  void enter(GroupId group, at::Tensor gradients, std::function<void()> on_done) override;
  Result<bool> has_ended(GroupId group) override;
  void give_up() override;
  void lose(transport::Peer peer, const Error& why) override;

 private:
  /// Holders that call together.
  struct Circle {
    std::vector<DeviceSlot> holders;  ///< By rank.
    NcclSeat seat;
  };

  Status open_circle(const ParallelPlan& plan, GroupId first, DeviceId device,
                     EpochNumber generation, std::vector<Circle>& old);
  Status warm_up(std::vector<std::size_t> lengths);

  const std::shared_ptr<NcclDevice> device_;
  std::map<GroupId, std::size_t> circle_of_;  ///< Index into the circles.
  std::map<GroupId, transport::Operation> running_;
  std::mutex mutex_;  ///< Of what follows.
  std::vector<Circle> circles_;
  std::map<transport::Peer, Error> lost_;  ///< Since the layout is being opened.
};

}  // namespace troupe::engine
