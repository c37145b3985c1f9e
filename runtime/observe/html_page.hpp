// The frame of every HTML page that Troupe writes: one file, styles and scripts inside, no network.
//
// Pure.

#pragma once

#include <string>
#include <string_view>

namespace troupe::observe {

/// Text for an element or a quoted attribute. Bytes that are not UTF-8 are replaced by U+FFFD;
/// control characters and marks that turn the direction of writing are written out (`printable`).
std::string html_text(std::string_view text);

/// JSON for a `<script type="application/json">`: nothing in it can end the element.
std::string script_json(std::string json);

/// The whole page: `body` (HTML) below a heading with `title` (text) and `subtitle` (text, may be
/// empty), with the styles and scripts of charts and timelines.
std::string html_page(std::string_view title, std::string_view subtitle, std::string_view body);

/// A number for people: four figures, no exponent between 0.001 and a million.
std::string figure(double value);

}  // namespace troupe::observe
