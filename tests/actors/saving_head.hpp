// A head whose job saves, for tests of what becomes of its checkpoints.

#pragma once

#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "tests/actors/head_fixture.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::actors {

/// A layout whose other nodes have all of the model where one is gone, or one of which none can be
/// done without.
inline std::function<void(job::Job&)> placed(bool is_whole_without_one) {
  if (is_whole_without_one) return {};
  return one_pipeline;
}

/// A head whose job saves as `edit` says, or else when it is told to and where it ends; with a log.
struct SavingHead {
  explicit SavingHead(std::int64_t steps = 9,
                      const std::function<void(job::Checkpointing&)>& edit = {},
                      const std::function<void(job::Job&)>& place = {})
      : head(steps, [&](job::Job& job) {
          job.job.run_dir = scratch / "run";
          job.cluster.stop_timeout_s = 8;
          if (edit) edit(job.checkpoint);
          if (place) place(job);
        }) {
    head.resources.logger =
        observe::Logger::create(nullptr, {"head", observe::LogLevel::info, scratch / "log"})
            .value();
    head.start_training();
  }

  std::string log() const {
    std::ifstream stream(scratch / "log");
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  const SaveOrder& order(std::size_t node = 0) { return head.seen[node].saves.back(); }

  /// Every device that has something to write says that it has.
  void write(std::set<std::size_t> but = {}) {
    for (std::size_t node = 0; node < 4; ++node) {
      if (but.contains(node) || order(node).shards.empty()) continue;
      SaveReport report{order(node).number, {NodeId{node}, 0}, true};
      report.file = "state-" + std::to_string(node);
      report.bytes = 10;
      report.sha256 = "ab";
      head.tell(report);
    }
  }
  void keep(Status status = Done{}) {
    KeptCheckpoint kept;
    kept.number = order().number;
    kept.status = std::move(status);
    head.tell(std::make_shared<const KeptCheckpoint>(kept));
  }
  /// All devices are PREPARED for a step that is planned.
  void prepare(std::int64_t step) {
    for (std::size_t device = 0; device < 4; ++device) head.prepared(device, step, 1, 1);
  }
  void run_step(std::int64_t step) {
    head.plan(step - 1);
    head.run_step(step);
  }

  testing::ScratchFolder scratch;
  Head head;
};

}  // namespace troupe::actors
