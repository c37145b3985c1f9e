#include "app/doctor/finding.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

namespace troupe::app {

std::string_view to_string(Level level) {
  switch (level) {
    case Level::ok: return "ok";
    case Level::warning: return "warning";
    case Level::problem: return "problem";
  }
  return "";
}

Finding fine(std::string name, std::string found) {
  return {std::move(name), Level::ok, std::move(found), ""};
}

Finding warning(std::string name, std::string found, std::string fix) {
  return {std::move(name), Level::warning, std::move(found), std::move(fix)};
}

Finding problem(std::string name, std::string found, std::string fix) {
  return {std::move(name), Level::problem, std::move(found), std::move(fix)};
}

Finding problem(std::string name, const Error& error) {
  return problem(std::move(name),
                 error.where.empty() ? error.message : error.where + ": " + error.message,
                 error.fix);
}

std::int64_t count_of(const std::vector<Finding>& findings, Level level) {
  return std::ranges::count(findings, level, &Finding::level);
}

std::string verdict(const std::vector<Finding>& findings, const std::string& subject) {
  const auto counted = [&](Level level) {
    const auto count = count_of(findings, level);
    return std::to_string(count) + " " + std::string(to_string(level)) + (count == 1 ? "" : "s");
  };
  const bool warns = count_of(findings, Level::warning) > 0;
  const std::string warnings = warns ? counted(Level::warning) : "";
  if (count_of(findings, Level::problem) > 0)
    return subject + " cannot run on this machine: " + counted(Level::problem) +
           (warns ? ", " + warnings : "");
  return subject + " can run on this machine: " + (warns ? warnings : "all is fine");
}

std::string size_words(Bytes bytes) {
  constexpr double kKiB = 1024;
  const auto count = static_cast<double>(bytes.count());
  std::array<char, 32> text{};
  if (count >= kKiB * kKiB * kKiB)
    std::snprintf(text.data(), text.size(), "%.1f GiB", count / (kKiB * kKiB * kKiB));
  else if (count >= kKiB * kKiB)
    std::snprintf(text.data(), text.size(), "%.0f MiB", count / (kKiB * kKiB));
  else
    std::snprintf(text.data(), text.size(), "%.0f KiB", count / kKiB);
  return text.data();
}

}  // namespace troupe::app
