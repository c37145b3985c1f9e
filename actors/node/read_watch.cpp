#include "actors/node/read_watch.hpp"

#include <sstream>

namespace troupe::actors {

Status ReadWatch::pass(Time now, double timeout_s, const std::optional<files::FileRead>& oldest) {
  const bool over = wait_.pass(now, seconds(timeout_s), oldest ? oldest->number : 0);
  if (!oldest || !over) return Done{};
  std::ostringstream text;
  text << oldest->file.string() << " could not be "
       << (oldest->use == files::FileUse::read ? "read" : "written") << " within " << timeout_s
       << " s: its file system does not answer";
  return Error{
      Errc::timed_out, text.str(), setting_,
      "look at the disk or the network file system that holds it, then start again; raise " +
          setting_ + " where it may take longer"};
}

}  // namespace troupe::actors
