#include "engine/execution/made_stages.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "engine/execution/fault_words.hpp"

namespace troupe::engine {

namespace {

/// As long as it lives the device is at this work, and at no other.
class Making {
 public:
  Making(WorkInHand& in_hand, LongWork work) : in_hand_(in_hand) {
    in_hand_.belong_to([work = std::move(work)](const Action*, const StageCall&) { return work; });
    in_hand_.entered(nullptr);
  }
  ~Making() { in_hand_.belong_to({}); }
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;

 private:
  WorkInHand& in_hand_;
};

/// What it is to make a stage, should nobody wait for it any longer. `where`: as errors have it.
LongWork making(const StageRequest& request, DeviceId device, EpochNumber epoch_number,
                const std::string& where) {
  LongWork work{device};
  work.work.epoch_number = epoch_number;
  work.work.thrown = kNeverReturns;
  work.work.error.code = Errc::timed_out;
  work.work.error.message = kNeverReturns + where;
  const std::string kind = stage_kind_of(request.plan, request.id, request.modules);
  if (!kind.empty()) work.work.error.message += " by stage kind '" + kind + "'";
  work.work.error.fix =
      "look what a stage, or a layer of it, waits for or loops in as it is made (`troupe check "
      "JOB` tries each stage alone); raise cluster.join_timeout_s where it may take so long";
  return work;
}

}  // namespace

Result<std::map<StageId, std::unique_ptr<StageProgram>>> make_stages(StageRequest request,
                                                                     DeviceId device,
                                                                     EpochNumber epoch_number,
                                                                     WorkInHand& in_hand) {
  std::map<StageId, std::unique_ptr<StageProgram>> stages;
  for (std::size_t i = 0; i < request.plan.stages.size(); ++i) {
    if (request.plan.stages[i].devices.front() != device) continue;
    request.id = StageId{i};
    const std::string where = ", as layout " + std::to_string(epoch_number) +
                              " comes up on device " + std::to_string(device.index()) +
                              ", `make` of " + stage_with_layers(request.plan, request.id);
    const Making in_the_stage(in_hand, making(request, device, epoch_number, where));
    auto stage = make_stage(request);
    if (!stage.ok()) {
      Error error = std::move(stage).error();
      // Others' words may go on over more lines.
      error.message.insert(std::min(error.message.find('\n'), error.message.size()), where);
      return error;
    }
    stages[request.id] = std::move(stage).value();
  }
  return stages;
}

}  // namespace troupe::engine
