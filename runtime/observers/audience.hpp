// All who look at what one node process computes: observers of the job in it, and listeners
// elsewhere.

#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "runtime/observers/listeners.hpp"
#include "runtime/observers/observing.hpp"

namespace troupe::observers {

/// Thread-safe, but for `seat`.
class Audience {
 public:
  /// The observers of the job. REQUIRES: nothing is computed yet.
  void seat(std::unique_ptr<Observing> own) { own_ = std::move(own); }
  Listeners& listeners() { return listeners_; }

  /// Nobody looks at anything.
  bool is_empty() const { return own_ == nullptr && listeners_.is_empty(); }
  /// A device begins this step. Whether anybody may look at any of it: where not, nothing is to be
  /// kept or copied for it.
  bool begins(std::int64_t step);
  /// Whether somebody looks at this of a module in that step.
  bool wants(std::int64_t step, const std::string& module, Kind kind) const;
  /// To all who want it, as far as their queues have room. What is not whole (`is_whole`) nobody
  /// sees: it is noted, by module and kind.
  void show(const std::shared_ptr<const Observed>& part);
  void show(const ObservedStep& step);

  /// A trouble of the next tally, once however often it is noted.
  void note(const std::string& trouble);
  Tally take_tally();

  /// Lets observers in this process see what waits, and end.
  void end();

 private:
  std::unique_ptr<Observing> own_;  ///< None: the job has none.
  Listeners listeners_;
  std::mutex mutex_;
  std::set<std::string> noted_;
  std::vector<std::string> untold_;  ///< Of these.
};

}  // namespace troupe::observers
