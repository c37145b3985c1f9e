// Whether `troupe train` goes on from a checkpoint, and from which.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/job/job.hpp"
#include "runtime/state/checkpoint.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::app {

/// What the command line says about it.
struct ResumeWish {
  bool fresh = false;  ///< Begin anew whatever is there.
  bool resume = false;
  std::string run;  ///< `latest`, or the folder of the run to go on with.

  /// The run that was named; empty: the job's own.
  std::string named_run() const { return run == "latest" ? "" : run; }
};

struct ChosenCheckpoint {
  std::unique_ptr<state::Checkpoint> checkpoint;  ///< Null: the job begins.
  std::vector<std::string> warnings;  ///< Newer ones that are damaged or incomplete, a line each.
  Status status = Done{};             ///< Why none can be gone on from though one should.
};

/// The newest whole checkpoint of the job's run where one is wished, or where the run that is there
/// has not come to its end: it was killed, or ended with exit code 75. Incomplete saves that have
/// all of a state together become its checkpoint first; a newer one that lacks something is warned
/// of.
///
/// Errors: not_found: one is wished and there is none. bad_data: there are some, none is whole; or
/// an incomplete save alone: names what is missing, and who held it.
Result<ChosenCheckpoint> choose_checkpoint(const job::Job& job, const ResumeWish& wish);

}  // namespace troupe::app
