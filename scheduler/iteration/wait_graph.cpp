#include "scheduler/iteration/wait_graph.hpp"

#include <algorithm>
#include <cstddef>

#include "runtime/vocabulary/index.hpp"

namespace troupe::scheduler {

namespace {

struct Place {
  std::int32_t list = -1;
  std::int32_t position = -1;
};

/// Users of each node in one block per node.
class Users {
 public:
  Users(std::int32_t nodes, const std::vector<std::pair<std::int32_t, std::int32_t>>& needs)
      : first_(at(nodes) + 1), users_(needs.size()) {
    for (const auto& [node, need] : needs) ++first_[at(need) + 1];
    for (std::size_t n = 1; n < first_.size(); ++n) first_[n] += first_[n - 1];
    auto next = first_;
    for (const auto& [node, need] : needs) users_[next[at(need)]++] = node;
  }
  template <class Visit>
  void each(std::int32_t node, Visit visit) const {
    for (auto i = first_[at(node)]; i < first_[at(node) + 1]; ++i) visit(users_[i]);
  }

 private:
  std::vector<std::size_t> first_;
  std::vector<std::int32_t> users_;
};

}  // namespace

WaitFaults find_wait_faults(const WaitGraph& graph) {
  WaitFaults faults;
  std::vector<Place> places(at(graph.nodes));
  for (std::size_t l = 0; l < graph.lists.size(); ++l)
    for (std::size_t i = 0; i < graph.lists[l].size(); ++i)
      places[at(graph.lists[l][i])] = {static_cast<std::int32_t>(l), static_cast<std::int32_t>(i)};

  // Being next in a list is one more need; a misplaced wait would block itself, so it is left out.
  std::vector<std::pair<std::int32_t, std::int32_t>> needs;
  for (const auto& [node, need] : graph.needs) {
    const Place a = places[at(node)];
    const Place b = places[at(need)];
    if (a.list >= 0 && a.list == b.list && a.position <= b.position)
      faults.misplaced.emplace_back(node, need);
    else
      needs.emplace_back(node, need);
  }
  for (const auto& list : graph.lists)
    for (std::size_t i = 1; i < list.size(); ++i) needs.emplace_back(list[i], list[i - 1]);
  std::sort(faults.misplaced.begin(), faults.misplaced.end());

  std::vector<std::int32_t> left(at(graph.nodes));
  for (const auto& [node, need] : needs) ++left[at(node)];
  std::vector<std::int32_t> ready;
  for (std::int32_t n = 0; n < graph.nodes; ++n)
    if (left[at(n)] == 0) ready.push_back(n);
  const Users users(graph.nodes, needs);
  std::vector<bool> done(at(graph.nodes));
  while (!ready.empty()) {
    const auto node = ready.back();
    ready.pop_back();
    done[at(node)] = true;
    users.each(node, [&](std::int32_t user) {
      if (--left[at(user)] == 0) ready.push_back(user);
    });
  }

  std::vector<std::int32_t> waits_for(at(graph.nodes), -1);
  for (const auto& [node, need] : needs)
    if (!done[at(need)] && waits_for[at(node)] < 0) waits_for[at(node)] = need;
  for (const auto& list : graph.lists) {
    const auto head =
        std::find_if(list.begin(), list.end(), [&](std::int32_t node) { return !done[at(node)]; });
    if (head != list.end()) faults.stuck.emplace_back(*head, waits_for[at(*head)]);
  }
  return faults;
}

}  // namespace troupe::scheduler
