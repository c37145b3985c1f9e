// A job that loses nodes, for tests of how it goes on.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/actors/head_fixture.hpp"

namespace troupe::actors {

/// A head whose job trains two pipelines: the encoder on node 0 and the llm on node 1; everything
/// up to half of the llm on node 2, the rest on node 3. Devices are numbered as nodes are.
class RecoveringHead {
 public:
  explicit RecoveringHead(std::int64_t steps = 9, const std::function<void(job::Job&)>& edit = {})
      : head(steps, edit) {
    head.start_training();
  }

  void lose(std::size_t node) { head.lose(node); }

  /// The nodes that are left take up the newest layout.
  void bring_up(EpochNumber epoch, const std::vector<std::size_t>& nodes) {
    for (const std::size_t id : nodes) head.tell(fetched_atom::value, NodeId{id}, epoch, 0.0);
    for (const std::size_t id : nodes) head.tell(applied_atom::value, NodeId{id}, epoch);
  }

  /// A step of the newest layout, which has so many devices.
  void run_step(std::int64_t step, EpochNumber epoch, std::size_t devices) {
    head.plan(step - 1);
    for (std::size_t device = 0; device < devices; ++device)
      head.prepared(device, step, 1, 1, epoch);
    for (std::size_t device = 0; device < devices; ++device) head.finished(device, step, epoch);
  }

  std::vector<std::int64_t> recorded() const {
    std::vector<std::int64_t> steps;
    for (const auto& step : head.recorder.steps) steps.push_back(step->metrics.step);
    return steps;
  }

  Head head;
};

}  // namespace troupe::actors
