// What is known about one optimizer step, and the lines it becomes in metrics.jsonl, samples.jsonl
// and the log.
//
// Plain values and pure functions. Keys are those of interfaces.md, section 3; they only grow.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/observe/stage_work.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::observe {

/// What a step's samples asked of the devices: arithmetic of the model alone (model FLOPs: without
/// recomputation, padding and optimizer), so that numbers of different plans can be compared.
struct ModelWork {
  double flops = 0;          ///< Forward and backward; 0: unknown.
  std::int32_t devices = 0;  ///< Of the layout.
  double device_tflops = 0;  ///< Peak of one; 0: unknown.

  /// 10^12 model FLOPs per second of the step and device; 0 where something is unknown.
  double tflops_per_device(double step_ms) const {
    return step_ms > 0 && devices > 0 ? flops / (step_ms * 1e9) / devices : 0;
  }
  /// Model FLOPs utilization: share of the peak; 0 where that is unknown.
  double mfu(double step_ms) const {
    return device_tflops > 0 ? tflops_per_device(step_ms) / device_tflops : 0;
  }

  friend bool operator==(const ModelWork&, const ModelWork&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, ModelWork& x) {
    return f(x.flops, x.devices, x.device_tflops);
  }
};

/// How even the work of one module group's replicas was: largest over mean; >= 1.
struct PhaseFigures {
  std::string group;          ///< `vision+audio`, `llm`.
  double drawn = 1;           ///< Predicted, had samples been dealt as they came.
  double planned = 1;         ///< Predicted, of the plan.
  double bound = 1;           ///< No deal of whole samples is more even, as predicted.
  double measured = 1;        ///< Of the time in its replicas' busiest stages.
  double far_rows = 0;        ///< Share of the rows handed to the llm that leave their node for it.
  double far_rows_bound = 0;  ///< No even deal of parts of samples sends less, as predicted.
  bool exchanged = false;     ///< Its replicas shared the step's media out; else as it was cut.

  friend bool operator==(const PhaseFigures&, const PhaseFigures&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, PhaseFigures& x) {
    return f(x.group, x.drawn, x.planned, x.bound, x.measured, x.far_rows, x.far_rows_bound,
             x.exchanged);
  }
};

/// One optimizer step, measured.
struct StepMetrics {
  std::int64_t step = 0;  ///< From 1.
  double loss = 0;        ///< Mean over trained tokens; NaN where there was none.
  /// What layers added to it, by `MODULE.NAME` (models/auxiliary_loss.hpp).
  std::map<std::string, double> auxiliary_losses = {};
  double lr = 0;         ///< Of the optimizer, not of modules with their own.
  double grad_norm = 0;  ///< Global, before clipping.
  std::int64_t samples = 0;
  TokenCount tokens = 0;  ///< Of the llm, media rows included.
  TokenCount trained_tokens = 0;
  double step_ms = 0;       ///< Wall-clock from one step's end to the next.
  double plan_ms = 0;       ///< Planning this step took.
  double plan_wait_ms = 0;  ///< Of it, what the step waited for.
  double bubble = 0;        ///< Idle share of stage time.
  double imbalance = 1;     ///< Largest over mean stage work.
  double data_wait_ms = 0;  ///< What the step waited for decoding.
  StepTimes times;          ///< Zeros: no device told.
  ModelWork work;
  std::int32_t nodes = 0;
  EpochNumber epoch_number = 0;
  double profile_step_ms = 0;     ///< Predicted by the profile alone; 0: nothing was predicted.
  double calibrated_step_ms = 0;  ///< The same with what was measured earlier in this run.
  /// Largest over mean microbatch work, had samples kept their order.
  double imbalance_in_order = 1;
  double imbalance_planned = 1;  ///< The same of the plan.
  std::int64_t deferred_samples = 0;
  TokenCount held_rows = 0;         ///< Most rows that wait for a later llm microbatch.
  Bytes held_bytes;                 ///< Their bytes.
  Bytes activation_bytes;           ///< Most on one device, rows that wait included.
  Bytes promised_activation_bytes;  ///< What the plan said of it.
  Bytes offloaded_bytes;      ///< Of activations and moments, most of one device in host memory.
  Bytes moved_to_host_bytes;  ///< Of all devices, the step over.
  /// Largest ratio of a device's activations to what the plan said of that device; those with less
  /// than a tenth of the fullest are left out. 0: nothing was predicted.
  double activations_over_promise = 0;
  std::int64_t corrected_shapes = 0;  ///< Whose predictions follow measured times.
  std::int64_t skipped_steps = 0;     ///< So far, this one included.
  std::int64_t bad_samples = 0;       ///< Different ones that were dropped so far.
  double checkpoint_stall_ms = 0;     ///< The optimizer step waited so long for state to be copied.
  double checkpoint_ms = 0;  ///< What the checkpoint took that was complete by now; 0: none.
  std::vector<PhaseFigures> phases;  ///< Of the layout, in model order.
  bool can_exchange = false;         ///< Some encoder has several replicas.
  bool exchanged = false;            ///< They shared the step's media out among all of them.
  std::string skipped;               ///< Why parameters were left alone; empty: they were updated.

  double tflops_per_device() const { return work.tflops_per_device(step_ms); }
  double mfu() const { return work.mfu(step_ms); }
  /// LLM tokens per second of this step; 0 where no time passed.
  double tokens_per_s() const {
    return step_ms > 0 ? 1000 * static_cast<double>(tokens) / step_ms : 0;
  }

  friend bool operator==(const StepMetrics&, const StepMetrics&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, StepMetrics& x) {
    return f(x.step, x.loss, x.auxiliary_losses, x.lr, x.grad_norm, x.samples, x.tokens,
             x.trained_tokens, x.step_ms, x.plan_ms, x.plan_wait_ms, x.bubble, x.imbalance,
             x.data_wait_ms, x.times, x.work, x.nodes, x.epoch_number, x.profile_step_ms,
             x.calibrated_step_ms, x.imbalance_in_order, x.imbalance_planned, x.deferred_samples,
             x.held_rows, x.held_bytes, x.activation_bytes, x.promised_activation_bytes,
             x.offloaded_bytes, x.moved_to_host_bytes, x.activations_over_promise,
             x.corrected_shapes, x.skipped_steps, x.bad_samples, x.checkpoint_stall_ms,
             x.checkpoint_ms, x.phases, x.can_exchange, x.exchanged, x.skipped);
  }
};

/// The object for metrics.jsonl, on one line. Numbers keep every bit; NaN and infinity become null.
/// `predicted_step_ms` is an older name of `calibrated_step_ms`, kept for readers that know it.
std::string metrics_line(const StepMetrics& metrics);

/// The object for samples.jsonl: which samples a step trained, in training order. Ids may hold any
/// bytes; what is not UTF-8 is replaced.
std::string samples_line(std::int64_t step, std::span<const std::string> ids);

/// What a line of a step knows besides the step itself.
struct StepLineOptions {
  std::int64_t total_steps = 0;       ///< 0: unknown.
  std::int64_t steps_per_epoch = 0;   ///< Of the data; 0: unknown, the epoch is left out.
  std::size_t columns = 0;            ///< Room for the line; 0: any.
  std::optional<double> left_s = {};  ///< Until the job ends; none: unknown.
};

/// One line for people: `step 12/100  epoch 3  loss 2.3461  lr 3.0e-04  ...`; epochs count from 1.
/// Where there is no room, the time left (a bar tells it too), the learning rate, the gradient's
/// norm, TFLOP/s per device, the bubble and MFU go, in this order; the rest stays whatever its
/// length. metrics.jsonl has all of it.
std::string step_line(const StepMetrics& metrics, const StepLineOptions& options);

/// `[#####...............]  12/100  1.25 s/step  1:50 left`, at most `width` columns;
/// `mean_step_ms` is the caller's estimate for a step. REQUIRES: total_steps >= 1.
std::string progress_bar(std::int64_t step, std::int64_t total_steps, double mean_step_ms,
                         std::int32_t width);

}  // namespace troupe::observe
