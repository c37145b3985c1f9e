// What `data show` tells: one sample's tokens, which of them are trained, and its media.
//
// Pure text.

#pragma once

#include <string>

#include "runtime/data/samples/decode_sample.hpp"

namespace troupe::data {

/// A decoded sample for a reader: a heading, a line per media item, then the tokens as runs, each
/// headed `[ignored]` or `[TRAINED]`; media rows as `<|image| x 140>`, line breaks as `\n` within
/// the line, control characters and broken UTF-8 as `\xNN`. With `colour`, trained runs are green
/// and ignored ones dim (ANSI sequences). A bad sample is one line with its reason. Nothing of the
/// data set acts on a terminal.
/// REQUIRES: decoded with media and text wanted.
std::string show_sample(const DecodeOutcome& outcome, const DataOptions& options, bool colour);

/// The tokens of `show_sample` alone. Runs stand on lines of their own.
std::string show_tokens(const ExpandedText& text, bool colour);

}  // namespace troupe::data
