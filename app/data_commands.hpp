// `troupe data check`, `data show`, `data audit` and `data make`: one function each. Private to
// app/.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "app/commands.hpp"
#include "app/read_limits.hpp"
#include "app/stalled_read.hpp"
#include "engine/setup/job_setup.hpp"
#include "runtime/data/samples/dataset.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::app {

struct DataOptions {
  JobArguments job;
  std::int64_t samples = 3;  ///< Of `data show`.
  std::int64_t skip = 0;
  std::string only_id;
  bool json = false;
};

struct MakeOptions {
  std::string folder;
  std::int32_t samples = 384;
  std::uint64_t seed = 42;
  bool uneven = false;
};

struct AuditOptions {
  std::string run;
  ReadTimeout timeout;
  bool json = false;
};

/// A job's data set, opened, and everything that says how samples are prepared. While it is there a
/// file that cannot be read ends the process (`data.read_timeout_s`), and so does a format's
/// function that does not return (`train.stall_timeout_s`).
struct OpenedData {
  std::unique_ptr<EndOnStalledRead> reads;
  engine::JobSetup setup;
  std::shared_ptr<const data::Dataset> dataset;
};

/// Errors: those of the job file and of the data set.
Result<OpenedData> open_data(const JobArguments& arguments);

/// Decodes every sample; prints counts, lengths and bad samples. Exit code 3 where more are bad
/// than `data.max_bad_fraction` allows.
int check_data(const DataOptions& options);

/// Prints samples as the model sees them: trained parts apart from ignored ones.
int show_data(const DataOptions& options);

/// Tells from a run's own record whether it trained every sample exactly once. Exit code 1 where
/// not.
int audit_data(const AuditOptions& options);

/// Writes the demo's data set below a folder.
int make_data(const MakeOptions& options);

}  // namespace troupe::app
