#include "runtime/observers/audience.hpp"

#include <utility>

namespace troupe::observers {

bool Audience::begins(std::int64_t step) {
  const bool is_listened_to = listeners_.begins(step);
  return own_ != nullptr || is_listened_to;
}

bool Audience::wants(std::int64_t step, const std::string& module, Kind kind) const {
  return (own_ != nullptr && own_->wants(step, module, kind)) ||
         listeners_.wants(step, module, kind);
}

void Audience::show(const std::shared_ptr<const Observed>& part) {
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
