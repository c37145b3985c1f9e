// A batch planner on tiny batches, and what nodes that have no files tell it.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/iteration/batch_planner.hpp"
#include "engine/layout/choose_layout.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {

/// A job of tiny batches dealt by count, so that it is plain who trains what: of six positions 0-2
/// go to pipeline 0 (nodes 0, 1), 3-5 to pipeline 1 (nodes 2, 3). Even ones have a picture.
inline job::Job dealt_by_count() {
  auto job = tiny_job();
  job.balancer.dealing = "count";
  return job;
}

struct PlannerFixture {
  JobSetup setup = prepare(dealt_by_count()).value();
  ParallelPlan plan = make_parallel_plan(setup).value();
  BatchPlanner planner{plan, planner_options(setup, 16, 1)};
};

inline std::map<NodeId, BatchOrder> measured(BatchPlanner& planner, const JobSetup& setup,
                                             std::int64_t batch) {
  std::vector<BatchReport> lengths;
  for (const auto& [node, order] : planner.measures(batch))
    lengths.push_back(tiny_lengths(setup, order));
  return planner.orders(batch, lengths).value();
}

/// Reports of all nodes on a batch that was measured, as their loaders would make them.
inline std::vector<BatchReport> reports(PlannerFixture& fixture, std::int64_t batch,
                                        std::int64_t bad_position = -1) {
  std::vector<BatchReport> all;
  for (const auto& [node, order] : measured(fixture.planner, fixture.setup, batch)) {
    std::vector<data::DecodeOutcome> outcomes;
    for (const auto& wanted : order.samples) {
      if (wanted.position == bad_position && !wanted.media.empty())
        outcomes.emplace_back(data::BadSample{"s" + std::to_string(bad_position),
                                              data::BadKind::missing_file, "x.png", "", "gone",
                                              ""});
      else
        outcomes.emplace_back(tiny_sample(wanted.position));
    }
    all.push_back(report_on(node, order, outcomes, fixture.setup, 1));
  }
  return all;
}

}  // namespace troupe::engine
