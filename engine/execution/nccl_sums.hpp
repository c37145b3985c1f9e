// A device's groups over NCCL for the sums of its gradients: opened for a layout, out of those of
// the layout before, one for each set of holders; and the sums that run in them.
//
// One thread opens, enters and looks; `lose` comes from any thread, also the transport's.

#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/execution/sum_calls.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "transport/nccl/nccl_group.hpp"

namespace troupe::engine {

struct NcclSumsOptions {
  c10::Device place = c10::kCPU;           ///< Where the device's tensors lie.
  DeviceSlot slot;                         ///< Which device it is.
  std::chrono::milliseconds sum{120'000};  ///< How long a sum may take, from this device's part on.
  std::chrono::milliseconds opening{60'000};  ///< And all that opens one group.
  transport::NcclLimits limits = {};
};

class NcclSums final : public SumCalls {
 public:
  /// `transport` connects the nodes, and outlives this.
  NcclSums(transport::Transport& transport, NcclSumsOptions options);
  ~NcclSums() override;

  /// Opens the groups in which `device` calls, for a layout whose nodes are connected; all their
  /// devices do at about the same time. Groups of a layout before are taken over where their
  /// holders are a part of theirs, and given up else. Blocks. Nothing of NCCL is needed for a
  /// layout without calls, or a device without a part in them (an invalid one).
  /// Errors: unavailable: there is no NCCL, or no device that it could add up on; the fix says what
  /// to do. Others as `NcclGroup::create`.
  Status open(const ParallelPlan& plan, DeviceId device, EpochNumber generation);

  /// A node is lost: ends the sums in which it has a part.
  void lose(transport::Peer peer, const Error& why);

  void enter(GroupId group, at::Tensor gradients, std::function<void()> on_done) override;
  Result<bool> has_ended(GroupId group) override;
  void give_up() override;

 private:
  /// Holders that call together.
  struct Circle {
    std::vector<DeviceSlot> holders;  ///< By rank.
    std::unique_ptr<transport::NcclGroup> group;
  };

  Status start_nccl();
  Result<std::shared_ptr<transport::NcclStream>> make_stream() const;
  Result<std::unique_ptr<transport::NcclGroup>> make_group(std::vector<Circle>& old,
                                                           const std::vector<DeviceSlot>& holders,
                                                           transport::NcclGroupOptions options);
  Status open_circle(const ParallelPlan& plan, GroupId first, DeviceId device,
                     EpochNumber generation, std::vector<Circle>& old);

  transport::Transport& transport_;
  const NcclSumsOptions options_;
  std::shared_ptr<transport::NcclContext> context_;
  std::map<GroupId, std::size_t> circle_of_;  ///< Index into the circles.
  std::map<GroupId, transport::Operation> running_;
  std::mutex mutex_;  ///< Of what follows.
  std::vector<Circle> circles_;
  std::map<transport::Peer, Error> lost_;  ///< Since the layout is being opened.
};

/// Who hears at once that a node is lost: the sums of all devices of a process. Thread-safe.
class LossListeners {
 public:
  void add(std::weak_ptr<NcclSums> sums);             ///< Until it is gone.
  void lose(transport::Peer peer, const Error& why);  ///< Tells all of them.

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<NcclSums>> all_;
};

}  // namespace troupe::engine
