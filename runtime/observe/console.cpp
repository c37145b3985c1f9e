#include "runtime/observe/console.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace troupe::observe {

namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const auto put = ::write(file, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

ConsoleOptions detect_console(int file) {
  const bool terminal = ::isatty(file) == 1 && variable("TERM") != "dumb";
  return {file, terminal, terminal && variable("NO_COLOR").empty()};
}

void Console::line(std::string_view text) {
  const auto columns = static_cast<std::size_t>(width());
  const std::scoped_lock lock(mutex_);
  // One write for all of it, or lines of another process could fall in between.
  std::string output;
  if (!status_.empty()) output += kEraseLine;
  output += text;
  output += '\n';
  // The terminal may have become narrower since.
  status_.resize(std::min(status_.size(), columns - 1));
  output += status_;
  write_all(options_.file, output);
}

void Console::status(std::string_view text) {
  if (!options_.terminal) return;
  const auto columns = static_cast<std::size_t>(width());
  const std::scoped_lock lock(mutex_);
  if (status_.empty() && text.empty()) return;
  // A status that wraps could not be erased: one column stays free.
  status_ = text.substr(0, columns - 1);
  write_all(options_.file, std::string(kEraseLine) + status_);
}

std::int32_t Console::width() const {
  winsize size{};
  if (::ioctl(options_.file, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return 80;
  return size.ws_col;
}

}  // namespace troupe::observe
