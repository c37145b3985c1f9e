// The traces of a run, trace.json and predicted.json, at a bounded size however long it is.
//
// While there is room every step is kept. Where there is none, steps between the first and the last
// ones are thinned: those stay whose number is a multiple of the stride, a power of two that grows
// with the run. Both files keep the same steps. Owned by one thread (the recorder).

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "runtime/observe/trace_writer.hpp"

namespace troupe::observe {

/// What a run's traces may take, and what they keep in any case.
struct TraceLimits {
  std::int64_t bytes_max = 100'000'000;  ///< Both files together: no viewer opens much more.
  std::int64_t first_steps = 100;        ///< Always whole: a run is looked at from its beginning.
  std::int64_t last_steps = 20;          ///< Always whole, at any time: how it ended.
};

/// The smallest stride >= `stride`, a power of two times it, with which the steps between the first
/// and the last ones fit into the room that `limits` leaves: five eighths of `bytes_max` less first
/// and last ones (the rest is for steps to come), and a quarter of these where they fill that.
std::int64_t stride_for(const std::map<std::int64_t, std::int64_t>& bytes_by_step,
                        std::int64_t stride, const TraceLimits& limits);

/// The steps that stay with this stride, of those in the map.
std::function<bool(std::int64_t step)> kept_steps(
    const std::map<std::int64_t, std::int64_t>& bytes_by_step, std::int64_t stride,
    const TraceLimits& limits);

class RunTrace {
 public:
  /// Creates or replaces `folder`/trace.json; predicted.json comes with the first step that was
  /// predicted. Times are written relative to `origin_ns`. Errors: io_failed.
  static Result<RunTrace> open(const std::filesystem::path& folder, std::int64_t origin_ns,
                               const TraceLimits& limits = {});

  /// Names for what follows; again after every reconfiguration. Errors: io_failed.
  Status set_names(TraceNames names);

  /// Adds a step as it was measured and as it was predicted (empty: it was not), which is laid
  /// beside it: both begin at the same time. Thins the files where they are full: they take at most
  /// `bytes_max`, or twice the first and last steps where that is more, and one step.
  ///
  /// Errors: io_failed.
  Status write(std::span<const TraceEvent> measured, std::span<const TraceEvent> predicted);

  /// Adds a mark to what was measured; thinning leaves it there. Errors: io_failed.
  Status mark(const TraceMark& mark) { return measured_.write(mark); }

  /// Between the first and the last steps, multiples of it are kept; 1: all.
  std::int64_t stride() const { return stride_; }

 private:
  explicit RunTrace(TraceWriter measured) : measured_(std::move(measured)) {}
  std::int64_t bytes() const;
  Status write_predicted(std::span<const TraceEvent> measured,
                         std::span<const TraceEvent> predicted);
  Status thin();

  std::filesystem::path folder_;
  std::int64_t origin_ns_ = 0;
  TraceLimits limits_;
  TraceNames names_;
  TraceWriter measured_;
  std::optional<TraceWriter> predicted_;
  std::int64_t stride_ = 1;
  std::int64_t full_at_ = 0;  // Bytes of both files from which on they are thinned.
};

}  // namespace troupe::observe
