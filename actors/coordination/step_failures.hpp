// Whether work of a step fails again where it is trained again: then no other node will do better,
// and the job had better end and say why than lose one node after the other.
//
// Pure but for what it remembers; nothing is sent. Single owner, not thread-safe.

#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::actors {

/// How much is known of a loss.
enum class FailureKind : std::uint8_t {
  unexplained,  ///< The node is gone, and nobody knows why: its machine, a kill, or what it ran.
  device,       ///< Its device failed, or what connects it with others, and the node said so.
  crashed,      ///< Its process ended by what it ran (`is_own_doing`).
  thrown,       ///< A stage threw, or does not return, and the node said so.
};

/// A node that is lost while it runs a step.
struct StepFailure {
  FailureKind kind = FailureKind::unexplained;
  std::int64_t step = 0;
  EpochNumber generation = 0;  ///< Of the layout in which it ran it.
  NodeId node;
  std::string who = {};   ///< `node 2 (host, pid 71)`.
  std::string said = {};  ///< `too tired, in step 3 on device 1`, or how its process ended.
  std::set<std::string> samples = {};  ///< Of its stages; where one threw, of the part.
  std::set<LayerId> layers = {};       ///< Of its stages.
  std::string thrown = {};             ///< The exception's own words, wherever it comes; or that
                                       ///< work does not return.
};

/// Whether a process ends by this signal through what it runs: SIGSEGV, SIGABRT and their like.
/// SIGKILL says nothing, nor does an exit code.
bool is_own_doing(std::int32_t signal);

/// What failed in one step, layout after layout. It is forgotten once another one fails: then the
/// step was finished after all. But for the last exception, which may be its samples' fault.
class StepFailures {
 public:
  /// So many losses without words, each while the same step was trained again, are no chance.
  static constexpr std::size_t kUnexplainedMax = 3;

  /// A node is lost while it runs a step; again of one that was added in this generation: more is
  /// known of it. None: a loss like any other. Else why the job ends:
  /// - internal: stages threw in two generations of one step, or threw the same for a sample of
  ///   both; or nodes crashed in two generations of one step, and had a sample in common.
  /// - transport_failed: nodes were lost in `kUnexplainedMax` generations of one step, however (a
  ///   device that fails is no exception: another one may do better),
  ///   and all had the same work in hand: a layer and a sample in common. Machines that go one by
  ///   one, a rack's or preempted ones, seldom have. Three may all the same, by chance, hence the
  ///   code with which a job goes on from its checkpoint.
  /// Losses of one generation count once: whatever ends two nodes at a time, no step came between.
  std::optional<Error> add(StepFailure failure);

  /// How a node's process ended, once that is known: as `add`. Nothing where the node was not
  /// added, or said more itself.
  std::optional<Error> explain(NodeId node, const std::string& how, std::int32_t signal);

 private:
  std::optional<Error> verdict(const StepFailure& newest) const;

  std::vector<StepFailure> failures_;  ///< Of one step, in order; generations never decrease.
  std::optional<StepFailure> thrown_;  ///< The last one of a step that was finished after all.
};

}  // namespace troupe::actors
