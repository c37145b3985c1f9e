// The layout of a job: the one in its file, or the one that the planner chooses
// (`parallel.mode = "auto"`).
//
// Deterministic: profile, data, job and seed decide. Reads headers of the data set, and a stored
// profile.

#pragma once

#include <vector>

#include "engine/iteration/microbatching.hpp"
#include "engine/layout/simulated_training.hpp"
#include "engine/setup/job_setup.hpp"
#include "engine/state/state_memory.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"

namespace troupe::engine {

inline constexpr std::int64_t kLayoutSamples = 512;  ///< Drawn from the data for choosing.

struct JobLayout {
  ParallelPlan plan;
  std::vector<scheduler::LayoutReason> reasons;  ///< Empty for a layout by hand.
  double predicted_step_ms = 0;                  ///< Of a chosen layout.
};

/// What `auto_layout` is asked for a job on its own nodes, without samples. `model` outlives it.
scheduler::AutoLayoutRequest layout_request(const JobSetup& setup,
                                            const scheduler::CostModel& model,
                                            const scheduler::DeviceSpeeds& speeds);

/// Training on paper of a job on `plan`, which outlives it.
SimulatedTraining training_on_paper(const JobSetup& setup, PlanningCosts costs,
                                    const ParallelPlan& plan);

/// Predicts a layout by mean steps as training would make them (`SimulatedTraining`), over
/// `kJudgedBatches` batches drawn from `samples`; memory: the largest. `setup` outlives it.
/// REQUIRES: samples not empty.
///
/// Errors of calls: as `SimulatedTraining::step`.
scheduler::LayoutJudge training_judge(const JobSetup& setup, const PlanningCosts& costs,
                                      std::vector<SampleShape> samples);

inline constexpr std::uint64_t kJudgedBatches = 3;

/// Whether a job cuts its batches otherwise than the search for a layout does, so that a judge has
/// the last word: by a policy, or shared out by phase.
bool needs_judge(const job::Job& job);

/// The layout by hand of a job, with its standby holders. Spare nodes keep nothing where memory
/// does not do for that.
///
/// Errors: as `scheduler::place_by_hand`.
Result<ParallelPlan> place_own_layout(const JobSetup& setup);

/// Where every layer lives. A job of one device needs no choice, unless layers of its encoders have
/// stages of two kinds. Chosen by `setup.costs`, else by the profile at hand.
///
/// Errors: as `scheduler::place_by_hand`; for a layout that is to be chosen as `first_layout`,
/// `draw_shapes` and `profile_at_hand`.
Result<JobLayout> choose_layout(const JobSetup& setup);

/// The same without reasons: the plan that a job starts with.
Result<ParallelPlan> make_parallel_plan(const JobSetup& setup);

/// Templates of pipelines on 1 to all nodes of the job, for when nodes are lost or join: one device
/// per stage, balanced for `samples`; of module groups with replicas of their own on 1 to all of
/// its devices. None where the job has one node, no costs or no samples, or
/// where the model cannot be cut so.
scheduler::TemplateSet templates_for_losses(const JobSetup& setup, const ParallelPlan& plan,
                                            std::vector<SampleShape> samples);

/// The same for `kLayoutSamples` samples drawn from the data, as a layout is chosen by: for losses
/// before the first batch is planned. Reads their headers.
///
/// Errors: as `draw_shapes`.
Result<scheduler::TemplateSet> draw_templates(const JobSetup& setup, const ParallelPlan& plan);

/// Whether the engine can run a layout.
/// Errors: unavailable: a stage of several devices.
Status check_executable(const ParallelPlan& plan);

/// Nodes that a layout may use while none is lost.
std::int32_t working_nodes(const job::Cluster& cluster);

/// Whether devices without a stage are a fault of the job.
scheduler::IdleDevices idle_of(const job::Job& job);

/// How many nodes any layout of the job may lose and still have a holder of everything, and what
/// spare nodes may keep of it.
scheduler::Tolerance tolerance_of(const job::Job& job);
/// The same where nodes have said what memory they have.
scheduler::Tolerance tolerance_of(const job::Job& job, const DeviceRooms& rooms);

/// The layouts that the job changes to while it runs (`debug.layouts`), in order.
/// Errors: as `scheduler::place_by_hand`, with `where` a key below `debug.layouts`.
Result<std::vector<ParallelPlan>> later_layouts(const JobSetup& setup);

}  // namespace troupe::engine
