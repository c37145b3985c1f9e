// What becomes of an exception that leaves a handler: a defect, or memory that ran out.
//
// Why: CAF writes it to standard output and ends the actor, of which nobody else hears, so that the
// job would wait for it until a time limit.

#pragma once

#include <caf/exit_reason.hpp>
#include <exception>
#include <string>

#include "runtime/vocabulary/result.hpp"

namespace troupe::actors {

/// The exception as an error of code `internal`: who met it and the first line of what it says.
Error describe_exception(const std::string& who, const std::exception_ptr& exception);

/// From now on `hear(std::exception_ptr)` hears of exceptions in the handlers of `self`, an actor,
/// which ends after it. Call it before anything that may throw; `hear` must not throw.
template <class Self, class Hear>
void hear_of_exceptions(Self self, Hear hear) {
  self->set_exception_handler([hear](std::exception_ptr& exception) {
    hear(exception);
    return caf::make_error(caf::exit_reason::unhandled_exception);
  });
}

/// The same for `tell(Error)`, which hears `describe_exception`.
template <class Self, class Tell>
void tell_of_exceptions(Self self, std::string who, Tell tell) {
  hear_of_exceptions(self, [who = std::move(who), tell](const std::exception_ptr& exception) {
    tell(describe_exception(who, exception));
  });
}

}  // namespace troupe::actors
