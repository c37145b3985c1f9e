#include "runtime/observe/html_page.hpp"

#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "runtime/observe/page_files.hpp"
#include "runtime/vocabulary/printable.hpp"

namespace troupe::observe {

namespace {

using Json = nlohmann::json;

// What is not UTF-8 becomes U+FFFD, by way of a JSON string.
std::string valid_utf8(std::string_view text) {
  const auto quoted = Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(quoted).get<std::string>();
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : printable(valid_utf8(text))) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string script_json(std::string json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";  // `</script>` and `<!--` mean something even inside of JSON strings.
    } else {
      out += c;
    }
  }
  return out;
}

std::string html_page(std::string_view title, std::string_view subtitle, std::string_view body) {
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      // An empty icon keeps a browser from asking a server for one.
      "<link rel=\"icon\" href=\"data:,\">\n<title>" +
      html_text(title) + "</title>\n<style>\n";
  page += kPageStyle;
  // The first script runs before the page is drawn: it catches errors and sets the chosen colours.
  page += "</style>\n<script>\n";
  page += kPageScript;
  page += "</script>\n</head>\n<body>\n<header>\n<div>\n<h1>" + html_text(title) + "</h1>\n";
  if (!subtitle.empty()) page += "<p class=\"subtitle\">" + html_text(subtitle) + "</p>\n";
  page +=
      "</div>\n<button type=\"button\" id=\"theme\" title=\"Light or dark colours\">"
      "Colours: automatic</button>\n</header>\n<main>\n";
  page += body;
  page += "</main>\n<script>\n";
  page += kTimelineScript;
  page += kTimelineViewScript;
  page += kTimelineInputScript;
  page += kChartScript;
  page += "</script>\n</body>\n</html>\n";
  return page;
}

std::string figure(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "-" : value > 0 ? "infinite" : "-infinite";
  char text[64];
  const double size = std::abs(value);
  if (size >= 1000 && size < 1e6) {
    std::snprintf(text, sizeof text, "%.0f", value);
  } else {
    std::snprintf(text, sizeof text, "%.4g", value);
  }
  return text;
}

}  // namespace troupe::observe
