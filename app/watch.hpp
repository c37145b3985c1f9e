// Looks at what a running job computes, from a process that takes no part in it.
//
//   struct Mine : troupe::observers::Observer { ... };
//   Mine mine;
//   auto watched = troupe::watch("runs/first", mine);
//
// The observer is that of runtime/observers/observer.hpp, as in a node process, with the nodes'
// values in one place. It influences nothing: what it is too slow for is dropped by the node that
// computed it and counted, and one that hangs or dies is forgotten. Who connects shows the job's
// key, as nodes do. Linked with `troupe::engine` of the installed CMake package; `troupe observe`
// is the same for who writes no C++, actors/link/observing.hpp for who writes actors.

#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/observers/observer.hpp"
#include "runtime/observers/watch.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe {

/// How it goes, and how it ended.
struct Watched {
  std::string job;             ///< Its name.
  std::int64_t steps = 0;      ///< Words on steps that the observer saw.
  std::int64_t parts = 0;      ///< Parts that it saw.
  std::int64_t missed = 0;     ///< That were dropped, because it was too slow.
  bool is_over = false;        ///< The job has ended; else it was enough.
  std::int32_t exit_code = 0;  ///< Of the job; -1: it ended while nobody told.
  std::string why;             ///< It ended so; empty where all went well.
};

/// What to look at, and until when.
struct WatchOptions {
  observers::Watch what;   ///< `name` and `options` say nothing here.
  std::string key_file;    ///< Of a job at an address: as `troupe node --key`.
  std::int64_t steps = 0;  ///< Ends behind so many words on steps; 0: with the job.
  double patience_s = 10;  ///< To find the job; again where its head is lost or begins anew.
  /// Asked behind everything that comes, and about every second; false: it is enough. Empty: true.
  std::function<bool(const Watched&)> goes_on = {};
};

/// Shows the observer what `options` ask for, from a next step on and in the calling thread, until
/// the job ends. Parts of one node come in the order in which they were computed, the word on a
/// step once, behind the parts of all nodes. `job`: its run folder, or where it listens
/// (`HOST:PORT`).
///
/// Errors:
/// - not_found: no job runs there.
/// - invalid_argument: no such module or number; another key, or none for a job that has one.
/// - unavailable: another build of troupe; as many look as may; it took nothing for half a minute.
/// - timed_out: nobody answers there.
/// - transport_failed: the job's head was lost, and no other came.
/// - internal: the observer has thrown; with the step.
Result<Watched> watch(const std::string& job, observers::Observer& observer,
                      const WatchOptions& options = {});

}  // namespace troupe
