// What a stage can do, as the executor of its device sees it. Built-in stages and custom ones
// written by users implement the same interface.
//
// Called in work of the device (engine/execution/device.hpp), one call at a time, in the order of
// the device's action list; tensors are the device's. Nothing here blocks on other devices: rows
// and gradients are handed in when they have arrived. `abandon` and `losses`, before a step
// `parameters` and `state` of what goes to host memory, in the first one `state` where gradients
// are dumped, and behind the last one `parameters`, are called by the executor's thread while the
// device has nothing to do; what leaves the device before (`losses` of an accelerator) waits for
// it. An exception, or an error that is returned, ends the step and is told with step, device,
// call, stage and samples: what a stage says need name none of these.

#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <string>
#include <vector>

#include "engine/execution/group_state.hpp"
#include "engine/iteration/reports.hpp"
#include "runtime/data/samples/decoded_samples.hpp"
#include "runtime/observers/observer.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

class Device;

/// A part of a microbatch: what goes forward together and has an autograd graph of its own.
struct PartKey {
  MicrobatchId microbatch;
  PartId part;

  friend auto operator<=>(const PartKey&, const PartKey&) = default;
};

/// Who is shown what modules compute (runtime/observers), while a part runs. What cannot be shown
/// (a module that is not there, a tensor of something else, beside forwards and backwards) throws;
/// of another number of rows than the part's samples have nobody sees it, and the log says so once.
class Viewer {
 public:
  virtual ~Viewer() = default;
  virtual bool wants(ModuleId module, observers::Kind kind) const = 0;  ///< Somebody looks.
  /// `values`: [rows, width], or [samples] of losses; the device's, and detached from autograd.
  virtual void show(ModuleId module, observers::Kind kind, at::Tensor values) = 0;
};

/// One stage of a pipeline.
class StageProgram {
 public:
  virtual ~StageProgram() = default;

  /// From now on `forward` and the backwards show what they compute of a part, where modules end:
  /// the rows, gradients and losses that the stage hands on, of each part once. Null: nobody looks,
  /// and nothing may be shown. `viewer` is there until then. Returns whether they do. A stage that
  /// shows nothing leaves it out: who looks is told so in the job's log, once.
  virtual bool show_to(Viewer* /*viewer*/) { return false; }

  /// Starts an iteration: gradients are zero, nothing is in flight. `plan` and `samples` stay valid
  /// until the next call.
  virtual Status begin(const IterationPlan& plan, const data::DecodedSamples& samples) = 0;

  /// Drops what the iteration has in flight; nothing of it goes on. Gradients may be left over.
  virtual void abandon() = 0;

  /// Runs the stage's layers on a part. All rows of its messages were handed in before.
  virtual Status forward(PartKey part) = 0;
  /// Input and weight gradients of a part. All gradients of its outgoing rows were handed in.
  virtual Status backward(PartKey part) = 0;
  /// Input gradients alone; `backward_weight` of the same part follows later.
  virtual Status backward_input(PartKey part) = 0;
  virtual Status backward_weight(PartKey part) = 0;  ///< Weight gradients alone, behind it.

  /// Between forward and backward of a part: what it keeps goes to host memory, by `device`.
  /// Returns the bytes that the device has no more; `activations` has fallen by as many. A stage
  /// that cannot leaves both out, and its kind says so (`StageKind::offloads`): no plan asks it
  /// then. Which parts a plan asks for, its actions say at `begin`. Errors: unavailable: it cannot;
  /// internal: no forward of the part came before.
  virtual Result<Bytes> offload(PartKey /*part*/, Device& /*device*/) {
    return Error{Errc::unavailable, "a stage of the user's own keeps its activations on the device",
                 "scheduler.offload_encoders",
                 "write \"moments\" or \"off\", or have the stage offload"};
  }
  /// The same bytes come back, behind `offload` of the part, and before its backward, which gives
  /// to the bit what it would have given without. Gradients of such a part are not split.
  virtual Result<Bytes> fetch(PartKey /*part*/, Device& /*device*/) {
    return Error{Errc::unavailable, "a stage of the user's own has nothing in host memory", {}, {}};
  }

  /// Rows [message.rows, message.width] of a message whose destination is this stage.
  virtual void accept_rows(MessageId message, at::Tensor rows) = 0;
  /// Rows of a message whose source is this stage, of the job's type, contiguous, detached from
  /// autograd.
  virtual Result<at::Tensor> rows_for(MessageId message) = 0;
  /// Gradient of the rows of a message whose source is this stage.
  virtual void accept_gradient(MessageId message, at::Tensor gradient) = 0;
  /// Gradient of the rows of a message whose destination is this stage, likewise.
  virtual Result<at::Tensor> gradient_for(MessageId message) = 0;

  /// State of the parameters of a group that `layer` of this stage uses; REQUIRES: it does. A
  /// stage on `StageLayers` has it from there.
  virtual GroupState& state(GroupId group, LayerId layer) = 0;

  /// All parameters of the stage, in layer order.
  virtual std::vector<models::Parameter*> parameters() = 0;

  /// REQUIRES: the iteration has not ended.
  /// Losses of the parts that went forward in this iteration, in order of execution; empty for a
  /// stage without the head.
  virtual std::vector<PartLoss> losses() const = 0;

  /// The same of what its layers add to the loss; a stage whose layers add nothing leaves it out.
  virtual std::vector<PartAuxiliary> auxiliary() const { return {}; }

  /// Bytes of activations kept for backward right now, as far as the stage knows them.
  virtual Bytes activations() const = 0;
};

}  // namespace troupe::engine
