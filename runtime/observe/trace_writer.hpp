// Writes a trace that Perfetto and chrome://tracing open.
//
// One process per node, one track per device, a slice per action, an arrow per message and per
// reduction, counters, marks. Owned by one thread (the recorder). Format: Trace Event Format, array
// form.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "runtime/observe/trace_event.hpp"
#include "runtime/observe/trace_names.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::observe {

/// A trace file that is valid JSON after every call, whatever happens to the process: each call is
/// one write, which replaces the closing bracket by the new entries and a bracket. Only `keep`
/// makes it smaller. Memory: a few numbers per step in the file.
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
  /// A mark of the whole job has global scope; one of a step says which, its kind and why.
  Status write(const TraceMark& mark);

  /// Takes the slices and arrows of all other steps out; names, counters and marks stay. The file
  /// is made anew beside the old one, which it replaces at once: who reads meanwhile, or after a
  /// crash in the middle, has one of the two whole. Cost: copies what is kept.
  /// Errors: io_failed; the old file is still there and can be written.
  Status keep(const std::function<bool(std::int64_t step)>& wanted);

  /// The file's size, but for its last bracket.
  std::int64_t bytes() const;

  /// What slices and arrows of each step take in it. Cost: linear in the steps.
  std::map<std::int64_t, std::int64_t> bytes_by_step() const;

 private:
  struct File;
  TraceWriter();
  Status write_of_step(std::span<const TraceEvent> events);

  std::unique_ptr<File> file_;
  TraceNames names_;
  std::set<DeviceSlot> announced_;  // Tracks whose names are in the file.
};

}  // namespace troupe::observe
