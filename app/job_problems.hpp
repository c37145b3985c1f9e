// What keeps a job that could be read from training: for `validate`, which says nothing else, for
// `doctor`, which looks at the machine too, and what of it `plan` and `train` ask alike.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/setup/job_setup.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::app {

/// What only the model builder and the planner can tell, at the lines of the job file, which is
/// `file`. Empty: `engine::prepare` and `engine::make_parallel_plan` succeed. Reads what
/// `modules.NAME.init` names.
std::vector<Error> job_problems(const job::LoadedJob& loaded, const std::string& file);

/// Whether stages of these layouts of the job have kinds that run them, and every kind families
/// that are there. Errors: as `engine::check_stage_kinds`, the first one.
Status check_kinds(const engine::JobSetup& setup, std::span<const ParallelPlan> plans);

/// Whether the state of every layout fits into the memory of this machine, where all nodes of the
/// job are on it. REQUIRES: the job has no problems.
/// Errors: infeasible: training would be refused here.
Status check_memory_here(const engine::JobSetup& setup);

/// What the job says in vain, what does not fit into this machine, and a part of its state that a
/// run before has left. Data that cannot be opened
/// are the business of `data check`. REQUIRES: the job has no problems.
std::vector<Error> job_warnings(const job::LoadedJob& loaded, const engine::JobSetup& setup);

}  // namespace troupe::app
