// Reads the input of the `schedule` problem, which `check` takes as well.

#pragma once

#include <string>
#include <vector>

#include "app/solve/problem.hpp"
#include "scheduler/cost/stage_times.hpp"

namespace troupe::app {

/// A pipeline by its stage times and what is asked about it.
struct ScheduleInput {
  scheduler::PipelineTimes times;
  std::vector<std::string> devices;         ///< Names, by device index, in order of first use.
  std::string schedule;                     ///< Empty where the input names none.
  std::vector<std::int32_t> max_in_flight;  ///< Per stage; 0: no bound.
};

/// Reads and checks it. `require_schedule`: refuse an input without `schedule`.
///
/// Errors:
/// - invalid_argument: as `Reader` and `scheduler::check_times` say, with the path.
Result<ScheduleInput> read_schedule_input(const Json& input, const std::string& path,
                                          bool require_schedule);

/// The text of `--schema schedule`: schedules are those that there are.
std::string schedule_schema();

}  // namespace troupe::app
