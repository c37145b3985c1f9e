#include "transport/ucx/log.hpp"

#include <ucs/config/global_opts.h>
#include <ucs/config/types.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

#include <unistd.h>

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace troupe::transport {
namespace {

thread_local std::string last_message;

ucs_log_func_rc_t record(const char*, unsigned, const char*, ucs_log_level_t level,
                         const ucs_log_component_config_t*, const char* format,
                         std::va_list arguments) {
  char text[256];
  std::va_list copy;
  va_copy(copy, arguments);
  std::vsnprintf(text, sizeof text, format, copy);
  va_end(copy);
  if (level == UCS_LOG_LEVEL_FATAL) {
    std::fprintf(
        stderr, "troupe: UCX ends process %d: %s\n  fix: a defect: please report it with the log\n",
        getpid(), text);
    return UCS_LOG_FUNC_RC_STOP;
  }
  // The first one names the cause, what follows is advice.
  if (level <= UCS_LOG_LEVEL_WARN && last_message.empty()) last_message = text;
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

void take_over_ucx_log() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (std::getenv("UCX_LOG_LEVEL") == nullptr) ucs_log_push_handler(record);
  });
}

void keep_ucx_from_signals() {
  // A closed terminal would end nothing any more, and `nohup` be forgotten.
  if (std::getenv("UCX_DEBUG_SIGNO") == nullptr && ucs_global_opts.debug_signo > 0)
    ucs_debug_disable_signal(static_cast<int>(std::exchange(ucs_global_opts.debug_signo, 0)));
  if (std::getenv("UCX_HANDLE_ERRORS") != nullptr) return;
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) ucs_debug_disable_signal(signal);
  ucs_global_opts.handle_errors = 0;  // Of its own assertions.
}

std::string take_ucx_message() { return std::exchange(last_message, {}); }

}  // namespace troupe::transport
