#include "runtime/door/refusal_log.hpp"

namespace troupe::door {

std::optional<std::string> RefusalLog::refused(const std::string& peer, const std::string& why,
                                               Time now) {
  ++count_;
  if (told_ && now - *told_ < kQuiet) {
    ++untold_;
    return {};
  }
  std::string line = "refused a connection from " + peer + ": it " + why;
  if (untold_ > 0) line += " (and " + std::to_string(untold_) + " others since the last line)";
  told_ = now;
  untold_ = 0;
  return line;
}

}  // namespace troupe::door
