// Reads a layout that stands in a file of its own, for a job that runs already.
//
// `read_layout_text` reads a file; the rest is pure.

#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "runtime/job/load_job.hpp"

namespace troupe::job {

/// A layout, and where each of its keys stands: `parallel.pipelines[0].stages[1].node`.
struct WrittenLayout {
  HandLayout layout;
  std::map<std::string, Origin> origins;
};

/// The text of a layout file.
/// Errors: not_found; invalid_argument: no regular file, or more than 1 MiB; io_failed.
Result<std::string> read_layout_text(const std::filesystem::path& file);

/// The `[parallel]` section of `text`, by hand in either form and checked as that of a job file,
/// for this job: its modules, its numbers of nodes and devices, its batch. Stages may leave devices
/// without work. `name` stands for the file in messages.
///
/// Errors: invalid_argument: at most four problems in one error, each with its line: not TOML, more
/// than 1 MiB, anything but such a section, a layout that is none of this job, or more llm copies
/// than samples in a batch.
Result<WrittenLayout> read_layout(const std::string& text, const std::string& name, const Job& job);

}  // namespace troupe::job
