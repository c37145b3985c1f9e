// What `troupe plan`, `simulate` and `whatif` share: their arguments, the job with its costs and
// sampled shapes, and a layout for it.

#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/commands.hpp"
#include "app/stalled_read.hpp"
#include "engine/layout/simulated_training.hpp"
#include "engine/profiling/corrected_profile.hpp"
#include "engine/setup/job_setup.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/cost/device_catalog.hpp"
#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/simulate/sum_choice.hpp"

namespace troupe::app {

using Json = nlohmann::ordered_json;

/// `JOB.toml [key=value ...] [--cluster NxGxDEVICE] [--json]`.
struct PlanningArguments {
  JobArguments job;
  std::string cluster;
  bool json = false;

  void add_to(CLI::App& command);
};

/// Machines that are not here.
struct PlannedCluster {
  scheduler::ClusterShape shape;
  scheduler::DeviceSpec device;
};

/// Reads `4x8xH100-80G`: nodes x devices per node x device.
///
/// Errors: invalid_argument: another form, or a count outside 1..100,000 devices; not_found: an
/// unknown device (all known ones are named).
Result<PlannedCluster> parse_cluster(const std::string& text);

/// Reads a job that is to be planned, not trained: what only training cannot do yet (GPUs, going on
/// without a lost node) is no problem, nor, unless `with_data`, is data that is not here.
///
/// Errors: the first other problem of `job::read_job`.
Result<job::LoadedJob> read_job_on_paper(const JobArguments& arguments, bool with_data);

/// A job ready to be planned. Not movable, because the request points at the model. While it is
/// there a file of its data that cannot be read ends the process (`data.read_timeout_s`), and so
/// does a function of a plug-in that does not return (`train.stall_timeout_s`).
struct Planning {
  std::unique_ptr<EndOnStalledRead> reads;
  engine::JobSetup setup;
  scheduler::CostModel model;
  scheduler::AutoLayoutRequest request;
  std::string device;    ///< As shown: `H100-80G`, `cpu`.
  std::string costs;     ///< Where times come from: `computed`, `measured`.
  bool by_hand = false;  ///< The job has a layout of its own, for the machines it names.
  std::vector<std::string> warnings;  ///< What of the job has no effect: a line each.
  /// Costs of machines that are not here, and what they are corrected by.
  std::optional<engine::CorrectedProfile> corrected;
  /// By what gradients are added up, and why, where the job leaves that open.
  std::optional<scheduler::LayoutReason> sums;
  /// What these were chosen by, where they are messages: the job's layout, which is then known.
  std::optional<scheduler::AutoLayout> layout_by_messages;

  Planning() = default;
  Planning(const Planning&) = delete;
  Planning& operator=(const Planning&) = delete;
};

/// What is known of who would call NCCL: on this machine, or where `elsewhere` names a device of
/// the catalogue, on such ones, which are taken to have it, each for itself. On this machine it may
/// load NCCL.
scheduler::CallFacts call_facts(const job::Cluster& cluster, const std::string& elsewhere);

/// What the job says in vain, a line each; `elsewhere`: planned for machines that are not here,
/// whose layout is chosen. Opens the data set; one that cannot be opened is told elsewhere.
std::vector<std::string> warnings_of(const job::LoadedJob& loaded, const engine::JobSetup& setup,
                                     bool elsewhere);

/// Reads job and data, and makes the costs. Shows progress.
///
/// Errors: those of the job file, of its data, of `parse_cluster`, of `check_kinds` and of the
/// profile.
Result<std::unique_ptr<Planning>> open_planning(const PlanningArguments& arguments);

/// The layout by hand of the job, or the chosen one, with its step as training would cut it.
/// `one_number`: see `AutoLayoutRequest`.
/// Errors: as `place_by_hand`, `engine::check_state_memory` (of a layout by hand), `first_layout`,
/// `engine::check_sources`, `check_kinds` and `SimulatedTraining::step`.
Result<scheduler::AutoLayout> make_layout(const Planning& planning, bool one_number = false);

using PredictedBatch = engine::SimulatedBatch;

/// Steps of a layout as training would make them, from its first one on, `layout` outlives it.
engine::SimulatedTraining training_on_paper(const Planning& planning,
                                            const scheduler::AutoLayout& layout);

/// What corrects costs of machines that are not here, in lines of a narrow terminal; empty where
/// costs are this machine's.
std::string corrections_lines(const std::optional<engine::CorrectedProfile>& corrected);

/// The same: `{"file", "device", "kinds": [{"kind", "factor"}...]}`, or null.
Json corrections_json(const std::optional<engine::CorrectedProfile>& corrected);

/// Says so where a profile that the job names corrects nothing.
void warn_of_profile(const job::LoadedJob& loaded, const engine::CorrectedProfile& corrected,
                     std::vector<std::string>& warnings);

/// A batch of the job's shapes. Seeds of a layout's prediction: those from `request.seed` on.
std::vector<SampleShape> draw_batch(const Planning& planning, std::uint64_t seed);

/// Writes the timeline of a simulated step, by the suffix of the file: .html a page, .json a trace.
/// Errors: as `observe::write_timeline_file`.
Status write_timeline(const Planning& planning, const scheduler::AutoLayout& layout,
                      const PredictedBatch& batch, const std::string& file);

/// Errors: invalid_argument: neither empty nor a file name ending in .html, .htm or .json.
Status check_timeline_file(const std::string& file);

/// The runs of a stage: `[{"module", "layers": [b, e]}...]`.
Json runs_json(const ParallelPlan& plan, const Stage& stage);

/// `27 %`.
std::string percent(double share);

/// `12.3 ms`, `1.25 s`.
std::string time_text(double ms);

/// `1.3 GB`, `640 MB`, `12 KB`.
std::string size_text(double bytes);

}  // namespace troupe::app
