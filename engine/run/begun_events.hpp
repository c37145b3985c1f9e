// Events of a run that have begun and are not over: a line of events.jsonl says what all phases
// took, so that a head that is killed before would leave no word of a loss that it dealt with.
//
// Owned by one thread.

#pragma once

#include <filesystem>
#include <vector>

#include "runtime/observe/run_event.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// begun_events.jsonl, which is there while an event is under way.
class BegunEvents {
 public:
  explicit BegunEvents(std::filesystem::path run) : run_(std::move(run)) {}

  /// Takes the place of one of its kind that was about none but its nodes: more were lost before
  /// the job could go on. Errors: io_failed.
  Status begin(const observe::RunEvent& event);

  /// It has its line of events.jsonl, and so has all that it took the place of. Over with it is
  /// what had begun with older layouts and has no line by now, who joined and was lost before the
  /// job went on, say: what came of it comes first. Errors: io_failed.
  Status ended(const observe::RunEvent& event);

  /// Has events.jsonl say what had begun when the process ended that wrote there. REQUIRES: nobody
  /// else writes there. Errors: io_failed; what was not told is told by another try.
  static Status tell(const std::filesystem::path& run);

 private:
  Status write() const;

  std::filesystem::path run_;
  std::vector<observe::RunEvent> begun_;
};

}  // namespace troupe::engine
