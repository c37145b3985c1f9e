// Where the processes of a job have its key from.

#pragma once

#include <memory>
#include <optional>
#include <string>

#include "actors/link/system.hpp"
#include "runtime/door/job_key.hpp"
#include "runtime/door/loopback_key.hpp"
#include "runtime/job/job.hpp"

namespace troupe::app {

/// A key that was given; none where nobody gave one.
using GivenKey = Result<std::optional<door::JobKey>>;

/// `cluster.key`, else TROUPE_KEY. Errors: those of `read_key` and `key_of_environment`.
GivenKey given_to_head(const job::Cluster& cluster);

/// The head's: `cluster.key`, else TROUPE_KEY; else one for this job alone, which listens on the
/// loopback then and leaves the key there for this user's processes.
struct HeadKey {
  door::JobKey key;
  std::shared_ptr<door::LoopbackKey> offered;  ///< Null where a key was given.
};

/// `port`: where the job listens. Errors: those of `read_key`, `key_of_environment` and
/// `LoopbackKey::offer`.
Result<HeadKey> head_key(const job::Cluster& cluster, std::uint16_t port);

/// A node's: of `file` if given, else TROUPE_KEY, else of `job_file`'s `cluster.key`, else the one
/// that a job of this user left for the loopback. Errors: those of reading them; invalid_argument:
/// there is none, and `address` is another machine's.
Result<actors::KeySource> node_key(const std::string& file, const std::string& job_file,
                                   const HostPort& address);

}  // namespace troupe::app
