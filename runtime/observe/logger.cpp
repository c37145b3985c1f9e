#include "runtime/observe/logger.hpp"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <spdlog/common.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>

#include "runtime/vocabulary/printable.hpp"

namespace troupe::observe {

namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

// A file keeps what a search may want, the day included: a job may run for weeks. A terminal gets a
// line that fits 100 columns: day, milliseconds and the level of ordinary lines are left out.
constexpr const char* kFilePattern = "%Y-%m-%d %H:%M:%S.%e [%n] %l: %v";
constexpr const char* kConsolePattern = "%H:%M:%S [%n] %v";
constexpr const char* kLoudConsolePattern = "%H:%M:%S [%n] %l: %v";

// Hands formatted lines to the console, which knows about the status below them.
class ConsoleSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit ConsoleSink(Console& console) : console_(console) {
    set_formatter_(std::make_unique<spdlog::pattern_formatter>(kConsolePattern));
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t buffer;
    const bool loud = message.level >= spdlog::level::warn;
    (loud ? loud_formatter_ : *formatter_).format(message, buffer);
    std::string_view text(buffer.data(), buffer.size());
    if (text.ends_with('\n')) text.remove_suffix(1);
    if (!loud || !console_.options().colour) return console_.line(text);
    const std::string_view colour = message.level >= spdlog::level::err ? "\x1b[31m" : "\x1b[33m";
    console_.line(std::string(colour) + std::string(text) + "\x1b[0m");
  }
  void flush_() override {}

 private:
  Console& console_;
  spdlog::pattern_formatter loud_formatter_{kLoudConsolePattern};
};

}  // namespace

struct Logger::Sinks {
  explicit Sinks(spdlog::logger made) : logger(std::move(made)) {}
  spdlog::logger logger;
};

Result<Logger> Logger::create(Console* console, const LoggerOptions& options) {
  std::vector<spdlog::sink_ptr> sinks;
  if (console != nullptr) sinks.push_back(std::make_shared<ConsoleSink>(*console));
  try {
    if (!options.file.empty()) {
      sinks.push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file.string()));
      sinks.back()->set_pattern(kFilePattern);
    }
  } catch (const spdlog::spdlog_ex& error) {
    return Error{Errc::io_failed, std::string("opening the log failed: ") + error.what(),
                 options.file.string(), ""};
  }
  Logger logger;
  logger.sinks_ =
      std::make_shared<Sinks>(spdlog::logger(options.node_name, sinks.begin(), sinks.end()));
  auto& log = logger.sinks_->logger;
  log.set_level(spdlog_level(options.level));
  log.flush_on(spdlog::level::info);
  return logger;
}

void Logger::log(LogLevel level, std::string_view text) const {
  if (sinks_ == nullptr) return;
  const std::string shown = printable(text);
  sinks_->logger.log(spdlog_level(level), spdlog::string_view_t(shown.data(), shown.size()));
}

std::size_t Logger::prefix_columns() const {
  constexpr std::string_view kWithoutName = "12:34:56 [] ";
  return kWithoutName.size() + (sinks_ == nullptr ? 0 : sinks_->logger.name().size());
}

void Logger::error(const Error& error) const { log(LogLevel::error, to_string(error)); }

}  // namespace troupe::observe
