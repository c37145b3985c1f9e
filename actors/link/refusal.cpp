#include "actors/link/refusal.hpp"

#include <utility>

#include "actors/link/protocol.hpp"

namespace troupe::actors {

caf::error refuse_with(Error why) {
  return caf::make_error(caf::sec::runtime_error, std::move(why));
}

std::optional<Error> refusal_in(const caf::error& answer) {
  const caf::message& carried = answer.context();
  if (!carried.match_elements<Error>()) return std::nullopt;
  return carried.get_as<Error>(0);
}

caf::error send_anew_with(const std::string& why) {
  return caf::make_error(caf::sec::runtime_error, begin_atom::value, why);
}

std::optional<std::string> sent_anew_in(const caf::error& answer) {
  const caf::message& carried = answer.context();
  if (!carried.match_elements<begin_atom, std::string>()) return std::nullopt;
  return carried.get_as<std::string>(1);
}

Error refused_at(const std::string& where, Error why) {
  why.message = "the supervisor refused: " + why.message;
  why.where = where + (why.where.empty() ? "" : ", " + why.where);
  return why;
}

Error no_welcome(const caf::error& answer, const std::string& where, std::chrono::seconds waited) {
  if (auto why = refusal_in(answer)) return refused_at(where, *std::move(why));
  return {Errc::timed_out,
          "the supervisor did not answer within " + std::to_string(waited.count()) + " s", where,
          "look whether `troupe train` still runs there"};
}

}  // namespace troupe::actors
