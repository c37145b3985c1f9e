// Where a node whose head is lost looks for the next one.
//
// Reads the run folder and the node's own job file, each time anew: their owner may change them
// while nodes wait. Connects to nobody. Thread-safe.

#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "actors/link/system.hpp"
#include "runtime/vocabulary/host_port.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::app {

/// What a node knows of where its job's head is, and may be.
struct HeadClues {
  std::filesystem::path run;       ///< The run folder as the head names it; need not be here.
  std::filesystem::path job_file;  ///< The node's own (`--job`); empty: it has none.
  std::string joined;              ///< `HOST:PORT` where the node joined.
  std::string listen;              ///< `cluster.listen` of the job that the head sent.
  /// What opens the door at an address.
  std::function<Result<actors::KeySource>(const HostPort&)> key_for;
};

/// Where a head may listen.
struct HeadPlace {
  HostPort address;
  actors::KeySource key;
};

/// In the order in which to try them: where the run folder's `control` says, what the node's own
/// job file names as `cluster.listen` now, where the node joined, and what the sent job names. Each
/// address once, but for the run folder's, which has a key of its own. Left out: what cannot be
/// read or has no key, any free port; of an address that stands for all of a machine's, this
/// machine is asked. `found_last`: this address comes last, because who was found there was of no
/// use.
std::vector<HeadPlace> head_places(const HeadClues& clues, const std::string& found_last);

}  // namespace troupe::app
