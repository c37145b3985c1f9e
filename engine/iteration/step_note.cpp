#include "engine/iteration/step_note.hpp"

#include <algorithm>

namespace troupe::engine {

void apply_note(JobProgress& progress, const StepNote& note) {
  progress.step = note.step;
  progress.tokens = note.tokens;
  progress.skipped = note.skipped;
  progress.deals = note.deals;
  for (const BadSampleNote& bad : note.bad) {
    const auto place = std::lower_bound(progress.bad.begin(), progress.bad.end(), bad,
                                        [](const auto& a, const auto& b) { return a.id < b.id; });
    // It counts from the batch that found it first: another epoch finds it again.
    if (place == progress.bad.end() || place->id != bad.id) progress.bad.insert(place, bad);
  }
}

}  // namespace troupe::engine
