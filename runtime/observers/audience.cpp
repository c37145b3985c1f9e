#include "runtime/observers/audience.hpp"

#include <utility>

#include "runtime/observers/whole_part.hpp"

namespace troupe::observers {

namespace {

/// Of a part that is left out. Of no number: nodes of which each has another one say the same.
std::string left_out_words(const Observed& part) {
  const char* what = part.kind == Kind::rows        ? "rows"
                     : part.kind == Kind::gradients ? "gradients"
                                                    : "losses";
  return std::string("observers do not see ") + what + " of '" + part.module +
         "' where their stage, a plug-in's, shows others than the part's samples have: have it "
         "show what it hands on, whole (`troupe check JOB` holds it to that)";
}

}  // namespace

bool Audience::begins(std::int64_t step) {
  const bool is_listened_to = listeners_.begins(step);
  return own_ != nullptr || is_listened_to;
}

bool Audience::wants(std::int64_t step, const std::string& module, Kind kind) const {
  return (own_ != nullptr && own_->wants(step, module, kind)) ||
         listeners_.wants(step, module, kind);
}

void Audience::show(const std::shared_ptr<const Observed>& part) {
  if (!is_whole(*part)) return note(left_out_words(*part));
  if (own_ != nullptr) own_->show(part);
  listeners_.show(part);
}

void Audience::show(const ObservedStep& step) {
  if (own_ != nullptr) own_->show(step);
  listeners_.show(step);
}

void Audience::note(const std::string& trouble) {
  const std::lock_guard lock(mutex_);
  if (noted_.insert(trouble).second) untold_.push_back(trouble);
}

Tally Audience::take_tally() {
  Tally tally = own_ != nullptr ? own_->take_tally() : Tally{};
  tally.add(listeners_.take_tally());
  const std::lock_guard lock(mutex_);
  tally.add({0, 0, std::exchange(untold_, {})});
  return tally;
}

void Audience::end() {
  if (own_ != nullptr) own_->end();
}

}  // namespace troupe::observers
