#include "actors/node/call_watch.hpp"

namespace troupe::actors {

Status CallWatch::pass(Time now, double timeout_s, const std::optional<plugins::UserCall>& oldest) {
  const bool over = wait_.pass(now, seconds(timeout_s), oldest ? oldest->number : 0);
  if (!oldest || !over) return Done{};
  return Error{
      Errc::internal, oldest->function + " has not returned for " + seconds_text(timeout_s),
      setting_,
      "look for a loop without an end in it; raise " + setting_ + " where it may take longer"};
}

}  // namespace troupe::actors
