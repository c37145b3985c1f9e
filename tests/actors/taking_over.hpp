// A head that gathers the nodes of one that was lost, in tests.

#pragma once

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "tests/actors/head_fixture.hpp"

namespace troupe::actors {

/// A head that takes over the job of `RecoveringHead`: two pipelines on four nodes, one device
/// each. Nodes come one by one with what they hold; it waits five seconds for them.
class TakingOver {
 public:
  explicit TakingOver(const std::function<void(job::Job&)>& edit = {})
      : head(9, edit, {}, [this](Head& it) { arrange(it); }) {}

  NodeHolding at_step(std::size_t node, std::int64_t step, EpochNumber epoch = 1) const {
    NodeHolding holding;
    holding.ready.node = NodeId{node};
    holding.epoch_number = holding.newest_epoch = epoch;
    holding.save_number = 3;
    holding.plan = head.resources.plan;
    holding.devices = {0};
    holding.progress.step = step;
    holding.progress.tokens = 100 * step;
    for (std::int64_t i = 1; i <= step; ++i) {
      engine::StepVerdict word;
      word.decision = {i, true, 1, 0.5, ""};
      word.note.step = i;
      word.note.tokens = 100 * i;
      word.note.loss = static_cast<double>(i);
      word.note.ids = {"s" + std::to_string(i)};
      holding.verdicts.push_back(word);
    }
    return holding;
  }

  void pass(std::chrono::milliseconds time) { head.pass(time, {}); }

  std::vector<std::optional<JobProgress>> opened;  ///< How the run folder was, in order.
  std::vector<std::set<NodeId>> started;           ///< Nodes that were there then.
  std::int64_t recorded_step = 9;
  Status opens = Done{};
  Head head;

 private:
  void arrange(Head& it) {
    it.resources.who = "process 9 on host";
    it.resources.gather =
        GatherWish{5,
                   false,
                   0,
                   false,
                   Done{},
                   [this, &it](const JobProgress* live) -> Status {
                     if (!opens.ok()) return opens;
                     opened.push_back(live ? std::optional(*live) : std::nullopt);
                     if (!live) return Done{};
                     it.resources.resume.is_live = true;
                     it.resources.resume.progress = *live;
                     it.resources.resume.recorded_step = recorded_step;
                     return Done{};
                   },
                   [this](const std::set<NodeId>& there) { started.push_back(there); }};
  }
};

}  // namespace troupe::actors
