#include "runtime/plugins/user_calls.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace troupe::plugins {

namespace {

struct Calls {
  std::mutex mutex;
  std::int64_t begun = 0;
  std::map<std::int64_t, UserCall> under_way;  // By number: the first is the oldest.
};

Calls& calls() {
  // Never destroyed: a process may end while one of its threads is still in such a function.
  static Calls& all = *new Calls;
  return all;
}

}  // namespace

CallingUser::CallingUser(std::string function) {
  const std::lock_guard lock(calls().mutex);
  number_ = ++calls().begun;
  calls().under_way.emplace(number_, UserCall{number_, std::move(function)});
}

CallingUser::~CallingUser() {
  const std::lock_guard lock(calls().mutex);
  calls().under_way.erase(number_);
}

std::optional<UserCall> oldest_user_call() {
  const std::lock_guard lock(calls().mutex);
  if (calls().under_way.empty()) return std::nullopt;
  return calls().under_way.begin()->second;
}

}  // namespace troupe::plugins
