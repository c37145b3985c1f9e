// Asks the head of a running job, by what its run folder says of it.

#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "actors/link/protocol.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::app {

/// How long a head may take that computes nothing, and answers at once unless it is stopped.
struct AskTimes {
  double find_s = 5;                        ///< Until it lets this process in.
  std::chrono::milliseconds answer{10000};  ///< Then, until it answers.
};

struct HeadAnswer {
  std::string text;
  std::string joins;  ///< `HOST:PORT` where it was asked, and where nodes of this machine join.
};

/// Starts an actor system of its own for it. Errors: those of `read_control`; timed_out: nobody
/// let this process in, or the head does not answer; unavailable: it refuses, with the reason and
/// the fix.
Result<HeadAnswer> ask_head(const std::filesystem::path& run, const actors::ControlRequest& request,
                            const AskTimes& times = {});

}  // namespace troupe::app
