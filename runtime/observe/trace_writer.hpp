// Writes a trace that Perfetto and chrome://tracing open.
//
// One process per node, one track per device, a slice per action, an arrow per message and per
// reduction, counters. Owned by one thread (the recorder). Format: Trace Event Format, array form.

#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "runtime/observe/trace_event.hpp"
#include "runtime/observe/trace_names.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::observe {

/// A trace file that is valid JSON after every call, whatever happens to the process: each call is
/// one write, which replaces the closing bracket by the new entries and a bracket.
class TraceWriter {
 public:
  /// Creates or replaces the file. Times are written relative to `origin_ns`.
  /// Errors: io_failed: the file cannot be created or written.
  static Result<TraceWriter> open(const std::filesystem::path& path, std::int64_t origin_ns);

  TraceWriter(TraceWriter&&) noexcept;
  TraceWriter& operator=(TraceWriter&&) noexcept;
  ~TraceWriter();

  /// Names for the events that follow; again after every reconfiguration.
  /// Errors: io_failed.
  Status set_names(TraceNames names);

  /// Adds slices and arrows. A receive is drawn even if its send is in another batch of events.
  /// Errors: io_failed.
  Status write(std::span<const TraceEvent> events);

  /// Errors: io_failed.
  Status write(const TraceCounter& counter);
  Status write(const TraceMark& mark);

 private:
  struct File;
  TraceWriter();

  std::unique_ptr<File> file_;
  TraceNames names_;
  std::set<DeviceSlot> announced_;  // Tracks whose names are in the file.
};

}  // namespace troupe::observe
