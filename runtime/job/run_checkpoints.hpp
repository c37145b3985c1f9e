// Where the checkpoints of a run are, by its own record.

#pragma once

#include <filesystem>

namespace troupe::job {

/// As `checkpoint.dir` of RUN/resolved.toml says, whatever has become of its data and libraries;
/// RUN/checkpoints where it names none, or where there is no such file.
std::filesystem::path checkpoints_of_run(const std::filesystem::path& run);

}  // namespace troupe::job
