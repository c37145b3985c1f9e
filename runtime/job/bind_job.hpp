// A tree of values to a Job: types, ranges and unknown keys. Private to runtime/job.

#pragma once

#include <string>
#include <vector>

#include "runtime/job/document.hpp"
#include "runtime/job/findings.hpp"
#include "runtime/job/job.hpp"

namespace troupe::job {

/// A job and which of its parts are good enough for checks that need the whole of them: a second
/// complaint about a part that is wrong already would only mislead.
struct BoundJob {
  Job job;
  bool modules_complete = true;
  bool layout_complete = true;
};

/// Fills a Job, adding every problem to `findings`. Modules stand in the order of the file and
/// `next` as written; check_job.hpp sorts and completes them.
BoundJob bind_job(const Value& root, Findings& findings);

/// `[modules]`. A module of unknown kind or family is left out after its problem was reported; the
/// family is no problem of its own where plug-ins are missing, one of which may have it.
std::vector<ModuleConfig> bind_modules(const Value* modules, bool has_all_plugins,
                                       Findings& findings);

/// `[[debug.layouts]]`.
std::vector<LaterLayout> bind_later_layouts(const Value::Array& list,
                                            const std::vector<std::string>& module_names,
                                            Findings& findings);

/// The root of a layout file: `[parallel]` with a layout by hand, and nothing else.
HandLayout bind_layout_file(const Value& root, const std::vector<std::string>& module_names,
                            Findings& findings);

/// `[parallel]`; `module_names` are the keys that may stand beside its own.
Parallel bind_parallel(const Value* parallel, const std::vector<std::string>& module_names,
                       Findings& findings);

}  // namespace troupe::job
