#include "runtime/schedules/registry.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "runtime/plugins/user_calls.hpp"
#include "runtime/vocabulary/named_list.hpp"

namespace troupe::schedules {

namespace {

struct Added {
  std::string name;
  std::shared_ptr<const OwnSchedule> schedule;
};

NamedList<Added>& added() {
  static NamedList<Added> all;
  return all;
}

bool is_built_in(const std::string& name) {
  return std::ranges::count(scheduler::schedule_names(), name) > 0;
}

Error blamed(const std::string& schedule, const std::string& what, const std::string& fix) {
  return {Errc::invalid_argument, "schedule '" + schedule + "' " + what, "scheduler.schedule", fix};
}

}  // namespace

Status register_schedule(OwnSchedule schedule) {
  const std::string name = schedule.name;
  if (!is_list_name(name))
    return blamed(name, "has no name for a job file", "use small letters, digits, `-` and `_`");
  if (!schedule.order) return blamed(name, "has no `order`", "set it");
  // Here, because planners are pure.
  schedule.order = [name, order = std::move(schedule.order)](
                       const TaskGraph& graph, const std::vector<std::int32_t>& max_in_flight) {
    const plugins::CallingUser call("`order` of schedule '" + name + "'");
    return order(graph, max_in_flight);
  };
  if (is_built_in(name) ||
      !added().add({name, std::make_shared<const OwnSchedule>(std::move(schedule))}))
    return blamed(name, "is there already", "choose another name, or register it once");
  return Done{};
}

std::vector<std::string> schedule_names() {
  auto names = scheduler::schedule_names();
  for (const Added* each : added().all()) names.push_back(each->name);
  return names;
}

scheduler::Schedule find_schedule(const std::string& name) {
  const Added* own = added().find(name);
  return own == nullptr ? scheduler::Schedule(name) : scheduler::Schedule(own->schedule);
}

}  // namespace troupe::schedules
