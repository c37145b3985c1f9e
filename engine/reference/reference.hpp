// Training without the engine, as the oracle that the engine is compared with.
//
// Two runs. `train_reference` takes one sample at a time through the model's layers: no plan, no
// packing, no boundary, no transport. `train_plan_reference` takes the plan's microbatches, parts
// and reduction order through whole-model graphs in one process: the pipelined run must equal it to
// the bit. Both write an ordinary run folder. Single-threaded but for the operators.

#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>

#include "engine/run/run_folder.hpp"
#include "engine/setup/job_setup.hpp"
#include "engine/setup/resume.hpp"
#include "runtime/observe/step_metrics.hpp"

namespace troupe::engine {

struct ReferenceOptions {
  /// Called after every step.
  std::function<void(const observe::StepMetrics&, std::int64_t total_steps)> on_step;
  /// Checked between steps: true ends the run early with `cancelled`.
  const std::atomic<bool>* stop = nullptr;
  ResumePoint resume = {};  ///< Where the run goes on; its checkpoint is read first.
  DataOrder data = {};      ///< Of the job (`data_order`), for its checkpoints.
  std::string build = {};   ///< Who writes them.
  std::string resolved_job = {};
  /// Looked at and taken back after each step: true saves it.
  std::atomic<bool>* save = nullptr;
  /// Called after every attempt to save, with older checkpoints that could not be removed.
  std::function<void(std::int64_t step, const Result<std::vector<Error>>&)> on_save = {};
};

/// One sample at a time: forward, backward, gradients added up in training order.
///
/// Errors: those of data and of the checkpoint that it goes on from, `bad_data` above
/// `data.max_bad_fraction`, io_failed, cancelled; internal: too many steps in a row without finite
/// loss; as `check_losses` and `layer_fault`, of which sample and step.
Status train_reference(const JobSetup& setup, RunFolder& folder, const ReferenceOptions& options);

/// The microbatches of the job's own plan, or those recorded in the run folder `recorded`.
///
/// Errors: as above; not_found, bad_data: no usable plan in `recorded`.
Status train_plan_reference(const JobSetup& setup,
                            const std::optional<std::filesystem::path>& recorded, RunFolder& folder,
                            const ReferenceOptions& options);

}  // namespace troupe::engine
