// A device as groups over NCCL see it: the library, the thread that calls it for all groups of the
// device, the streams that they run on, and how a group comes out of one of a layout before.
//
// One thread opens; the groups that it hands out say themselves who may call them.

#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "engine/iteration/reports.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "transport/nccl/nccl_group.hpp"

namespace troupe::engine {

struct NcclDeviceOptions {
  c10::Device place = c10::kCPU;  ///< Where the device's tensors lie.
  DeviceSlot slot;                ///< Which device it is.
  /// How long a call may take, from this device's part on.
  std::chrono::milliseconds call{120'000};
  /// And all that opens one group: two attempts, a third of it each, and letting go of what hangs.
  std::chrono::milliseconds opening{60'000};
  transport::NcclLimits limits = {};
};

/// Until when ranks say how a first call with this deadline went: some began a little later, and
/// give up what hangs.
transport::Deadline compare_end(transport::Deadline deadline, const NcclDeviceOptions& options);

/// A group, and the stream that its work runs on.
struct NcclSeat {
  std::shared_ptr<transport::NcclStream> stream;
  std::unique_ptr<transport::NcclGroup> group;
};

class NcclDevice {
 public:
  /// `transport` connects the nodes, and outlives this.
  NcclDevice(transport::Transport& transport, NcclDeviceOptions options);

  /// Opens a group: out of `before`, which is gone afterwards, where that has one, else on a stream
  /// of its own. Whether the others come from the same one, NCCL's meeting finds out. Blocks.
  /// `key`: of the job, that asks for it. Errors: unavailable: there is no NCCL, or no device that
  /// it could work on; the fix says what to do. Others as `NcclGroup::create`.
  Result<NcclSeat> open(NcclSeat before, transport::NcclGroupOptions options,
                        const std::string& key);

  transport::Transport& transport() const { return transport_; }  ///< That connects the nodes.
  const NcclDeviceOptions& options() const { return options_; }   ///< As they were given.

 private:
  Status start(const std::string& key);
  Result<std::shared_ptr<transport::NcclStream>> make_stream(const std::string& key) const;

  transport::Transport& transport_;
  const NcclDeviceOptions options_;
  std::shared_ptr<transport::NcclContext> context_;
};

}  // namespace troupe::engine
