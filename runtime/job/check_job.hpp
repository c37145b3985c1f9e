// Checks that need more than one key of a job, and completes what follows from others. Private to
// runtime/job; pure.

#pragma once

#include <cstdint>
#include <string>

#include "runtime/job/bind_job.hpp"
#include "runtime/job/findings.hpp"
#include "runtime/job/job.hpp"

namespace troupe::job {

/// Layers of a module, its special first and last ones included.
std::int32_t layer_count(const ModuleConfig& module);

/// Everything below, as far as the parts it needs are complete.
void check_job(BoundJob& bound, Findings& findings);

/// Fills `next`, sorts topologically (ties in the order of the file), and checks names, cycles,
/// the one llm, and that something trains. False: the graph is not usable.
bool check_modules(std::vector<ModuleConfig>& modules, Findings& findings);

/// Heads, widths and what else one module's hyperparameters must fulfil together.
void check_sizes(const std::vector<ModuleConfig>& modules, Findings& findings);

/// Warns of what is given in vain: keys without an effect in this job. Defaults are no words of the
/// user, so that a resolved job is not warned of. REQUIRES: a job without problems.
void check_effects(const Job& job, Findings& findings);

/// Layout by hand: nodes and devices that exist, every layer exactly once per pipeline or replica.
void check_layout(const Job& job, Findings& findings);

/// The same of one layout, whose tables stand in `section`; devices may be without a stage.
void check_hand_layout(const Job& job, const HandLayout& layout, const std::string& section,
                       Findings& findings);

/// Copies of the llm in the layout by hand, each of which trains samples of its own; 0: there is
/// no such layout.
std::int64_t llm_copies(const Job& job);
/// The same of the encoder that has most.
std::int64_t encoder_copies(const Job& job);
/// What copies of the llm are called: `pipelines`, or `llm replicas`.
std::string llm_copies_noun(const Job& job);

}  // namespace troupe::job
