// Which nodes have long been under half their usual speed, and how fast those are that never were
// as fast as the machine that the profile is of.
//
// A node is held against itself and against the others of the same step: what slows all of them
// down is no node's fault, and a node whose work the profile misjudges always did take so long.
// Pure but for what it remembers. Single owner, not thread-safe.

#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "runtime/vocabulary/head_memory.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::actors {

/// What the stages of one node took in a step, and would have by the profile.
struct NodePace {
  NodeId node;
  double measured_ms = 0;
  double profile_ms = 0;
};

/// A node that has slowed down, or is as fast as it was again.
struct SpeedChange {
  NodeId node;
  double times = 1;  ///< As long for the same work as usual.
  bool is_slow = true;

  friend bool operator==(const SpeedChange&, const SpeedChange&) = default;
};

class SlowNodes {
 public:
  static constexpr std::size_t kWindow = 20;  ///< Steps that are looked at together.

  /// Notes a finished step of a layout; a change of it forgets everything, but who is slow and what
  /// is usual of them. A node is slow once three quarters of its last `kWindow` steps took more
  /// than twice what is usual, which is the least median of so many steps so far; it is told once,
  /// until three quarters took less than 1.5 times that. A step says nothing of nodes without work
  /// or profile, nor where only one has some.
  std::vector<SpeedChange> note(EpochNumber generation, std::span<const NodePace> paces);

  /// A node comes that takes so many times as long as the profile has it. That counts until
  /// `kWindow` steps of a layout have shown how much longer it takes, over its profile, than the
  /// middle one of those nodes that came without such a word; where there is none, for good.
  void start(NodeId node, double times);

  /// Who is slow, and how many times as long as usual half of its last steps took; and who has come
  /// so (`start`), how many times as long as the others it takes.
  std::map<NodeId, double> times() const;
  /// Who is slow, for another head (`recall`): it could only take for usual what it sees.
  std::vector<SlowNodeNote> notes() const;
  /// A node that was slow under the head before: it stays so until it is seen to be as fast as it
  /// was. REQUIRES: no step was noted yet.
  void recall(const SlowNodeNote& note);
  /// The process in this place is gone.
  void forget(NodeId node);

 private:
  /// One figure of a node over time; larger is slower.
  class Record {
   public:
    void add(double figure);
    bool is_full() const { return recent_.size() == kWindow; }
    /// Its steps say nothing any more, but what was usual.
    void begin_anew() { recent_.clear(); }
    /// Of the last steps the one that so large a share is below, over what is usual.
    double times_usual(double share) const;
    double median() const;
    double usual() const { return usual_; }
    void recall(double usual) { usual_ = usual; }

   private:
    std::deque<double> recent_;
    double usual_ = 0;  ///< 0: not known yet.
  };
  struct Node {
    Record own;     ///< Measured over profile.
    Record beside;  ///< That, over what the middle one of all nodes has.
  };

  struct Start {
    double times = 1;
    Record beside;  ///< Its pace, over the middle one of nodes that are as the profile has them.
  };

  void change_layout();
  void note_starts(std::span<const std::pair<NodeId, double>> paces);

  EpochNumber generation_ = 0;
  std::map<NodeId, Node> nodes_;
  std::map<NodeId, double> slow_;
  std::map<NodeId, Start> starts_;
};

}  // namespace troupe::actors
