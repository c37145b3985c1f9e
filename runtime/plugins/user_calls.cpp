#include "runtime/plugins/user_calls.hpp"

#include <utility>

#include "runtime/files/under_way.hpp"

namespace troupe::plugins {

namespace {

files::UnderWay<UserCall>& calls() {
  // Never destroyed: a process may end while one of its threads is still in such a function.
  static files::UnderWay<UserCall>& all = *new files::UnderWay<UserCall>;
  return all;
}

}  // namespace

CallingUser::CallingUser(std::string function) : number_(calls().begin({0, std::move(function)})) {}

CallingUser::~CallingUser() { calls().end(number_); }

std::optional<UserCall> oldest_user_call() { return calls().oldest(); }

}  // namespace troupe::plugins
