// What decoded content of samples moves between nodes, where some nodes do not see their source of
// data: which stage reads what, who sends it, and where that stands in the lists.
//
// Pure. scheduler/check/delivery_check derives the same a second time and shares no code with it.

#pragma once

#include <map>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/iteration/redistribution.hpp"

namespace troupe::scheduler {

/// Modules of a stage that read samples themselves, not rows of a layer before.
struct ContentReads {
  std::vector<ModuleId> encoders;  ///< Those that begin here: they read media.
  std::vector<ModuleId> text;      ///< The llm where it begins or ends, a teacher where it begins.
};

ContentReads content_reads(const ParallelPlan& plan, StageId stage);

/// Says of samples, which name the nodes that see their source, who of the layout's nodes does, and
/// who decodes them for the others: of several, in the order of the samples, the one that has the
/// fewest bytes of samples so far, then the lowest. Of those that all of them see it says nothing.
///
/// Errors: infeasible: no node of the layout sees a sample.
/// Cost: O(samples x nodes that see them), nothing where all see everything.
Status choose_decoders(const ParallelPlan& plan, std::vector<SampleShape>& samples);

/// Samples as every layout takes them: seen by all of its nodes.
std::vector<SampleShape> of_no_layout(std::vector<SampleShape> samples);

/// One delivery for each part, each encoder of its stage or the stage's text, and each node that
/// decodes samples of it which the stage's node does not see. No media move but to the one stage
/// that reads them; text goes to each stage that reads it. Those of earlier microbatches come
/// first, then by stage, part and content.
///
/// Errors: invalid_argument: a sample that a stage reads on a node that does not see it has no
/// decoder that sees it and has a device in the layout.
/// REQUIRES: sound microbatches.
Result<std::vector<Delivery>> plan_deliveries(const ParallelPlan& plan, const RowFlow& flow,
                                              const std::vector<MicrobatchList>& microbatches,
                                              const SampleUnits& units);

/// What of an iteration's deliveries stands in lists.
class DeliveryActions {
 public:
  /// `deliveries` outlive it.
  explicit DeliveryActions(const std::vector<Delivery>& deliveries);

  /// Its sends, in order. They stand before all else: nobody ever waits for a device that waits
  /// itself.
  std::vector<Action> sends(DeviceId device) const;
  /// Receives that stand right before the forward of a part.
  std::vector<Action> receives(const MessageEnd& part) const;

 private:
  const std::vector<Delivery>& deliveries_;
  std::vector<DeliveryId> by_destination_;
  std::map<DeviceId, std::vector<DeliveryId>> by_sender_;  ///< Ascending.
};

}  // namespace troupe::scheduler
