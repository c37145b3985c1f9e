// How the head says no to a node: with all of the error, so that the node's process prints it like
// one of its own and ends with its exit code.

#pragma once

#include <caf/error.hpp>
#include <chrono>
#include <optional>
#include <string>

#include "runtime/vocabulary/result.hpp"

namespace troupe::actors {

/// The answer to a request that is refused for this reason.
caf::error refuse_with(Error why);

/// Why a request was refused; none: nobody answered it, or CAF itself did.
std::optional<Error> refusal_in(const caf::error& answer);

/// The answer to a node whose state is of no use any more, for this reason: its process begins
/// again, and joins like a new one.
caf::error send_anew_with(const std::string& why);

/// Why a node was sent to begin anew; none: it was not.
std::optional<std::string> sent_anew_in(const caf::error& answer);

/// A refusal as the process prints it that asked at `where`, a `HOST:PORT`.
Error refused_at(const std::string& where, Error why);

/// Why a node that asked there for a place got none: refused, or not answered within `waited`.
Error no_welcome(const caf::error& answer, const std::string& where, std::chrono::seconds waited);

}  // namespace troupe::actors
