// Why a run folder cannot be had that another job holds, and what its owner can do.
//
// Reads files, and asks the head of that job.

#pragma once

#include <filesystem>

#include "runtime/vocabulary/result.hpp"

namespace troupe::app {

/// The refusal of a run folder with whether the head of the job that holds it answers, and where it
/// does not since when it has written nothing and what frees the folder: a head that hangs keeps
/// its lock for ever. `refused` names its process. Takes a few seconds where it does not answer.
Error told_of_holder(Error refused, const std::filesystem::path& run);

}  // namespace troupe::app
