#include "runtime/vocabulary/result.hpp"

#include "runtime/vocabulary/printable.hpp"

namespace troupe {

std::string_view to_string(Errc code) {
  switch (code) {
    case Errc::invalid_argument: return "invalid argument";
    case Errc::infeasible: return "infeasible";
    case Errc::bad_data: return "bad data";
    case Errc::not_found: return "not found";
    case Errc::io_failed: return "input/output failed";
    case Errc::transport_failed: return "transport failed";
    case Errc::timed_out: return "timed out";
    case Errc::cancelled: return "cancelled";
    case Errc::unavailable: return "unavailable";
    case Errc::internal: return "internal error";
  }
  return "unknown error";
}

std::string to_string(const Error& error) {
  std::string text;
  if (!error.where.empty()) text += error.where + ": ";
  text += error.message.empty() ? std::string(to_string(error.code)) : error.message;
  if (!error.fix.empty()) text += "\n  fix: " + error.fix;
  return printable(text);
}

int exit_code(const Error& error) {
  switch (error.code) {
    case Errc::invalid_argument:
    case Errc::infeasible:
    case Errc::not_found:
    case Errc::unavailable: return 2;
    case Errc::bad_data: return 3;
    default: return 1;
  }
}

}  // namespace troupe
