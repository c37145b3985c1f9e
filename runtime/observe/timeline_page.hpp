// Draws timelines: one HTML file that needs no network, and the part of it that a report embeds.
//
// Pure. The page's script draws only what is in view, so that tens of thousands of intervals stay
// fast; without a script the table of each device's times is still there.

#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "runtime/observe/timeline.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::observe {

/// A page of its own with all timelines below one another on one time axis: they zoom together, so
/// that a prediction stands above what was measured. `title` names the page.
std::string timeline_page(const std::string& title, std::span<const Timeline> timelines);

/// The `<section>` of one timeline for a page made by `html_page`. `number` tells sections of one
/// page apart.
std::string timeline_section(const Timeline& timeline, int number);

/// Writes events as a page (`.html`, `.htm`) or as a trace for Perfetto (`.json`), by the suffix.
/// `title` is that of the page and of its timeline.
///
/// Errors:
/// - invalid_argument: another suffix.
/// - io_failed: the file.
Status write_timeline_file(const std::filesystem::path& path, const std::string& title,
                           std::span<const TraceEvent> events, const TraceNames& names);

}  // namespace troupe::observe
