// What a listener heard of several nodes, put together for one observer: parts out of their pieces,
// one word on a step out of the nodes' words, steps from their beginning.
//
// Pure but for what the observer does; not thread-safe. What makes no sense is left out and
// counted.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <variant>
#include <vector>

#include "actors/link/observing.hpp"
#include "runtime/observers/observer.hpp"

namespace troupe::actors {

/// Of steps whose word waits for some node: more than that no node is behind.
inline constexpr std::size_t kWordsMax = 256;

class SeenParts {
 public:
  /// `observer` outlives this.
  explicit SeenParts(observers::Observer& observer) : observer_(observer) {}

  /// A hub welcomed the listener. Parts of steps that one of these nodes did not show from their
  /// beginning are left out.
  void begin(const std::vector<std::int32_t>& nodes);
  /// A node shows from this step on; said again by one that has lost its part in the layout, which
  /// is then waited for as one that never said a word. Or it shows nothing any more.
  void here(std::int32_t node, std::int64_t first_step);
  void gone(std::int32_t node);
  /// What comes while `waits_for_nodes` is kept for later: who says what it took waits as well.
  void take(SeenPiece piece);
  void take(SeenStep step);
  /// Not all nodes that the hub named have said from where on they show.
  bool waits_for_nodes() const;
  /// Nothing comes any more of this hub: words that wait are said.
  void end();

  std::int64_t parts() const { return parts_; }    ///< That the observer saw.
  std::int64_t steps() const { return steps_; }    ///< Words that it saw.
  std::int64_t missed() const;                     ///< Parts that were dropped on the way.
  std::int64_t broken() const { return broken_; }  ///< That made no sense.

 private:
  struct Node {
    std::int64_t first_step = -1;  ///< -1: it has not said.
    std::int64_t word = 0;         ///< Step of its newest word; 0: none.
    bool shows = false;            ///< Something has come of it: a word will.
    std::int64_t dropped = 0;
    std::unique_ptr<observers::Observed> part;  ///< Being put together.
    std::uint64_t bytes_all = 0;
    std::shared_ptr<std::vector<std::uint8_t>> bytes;
  };

  void take_early();
  void add(Node& node, SeenPiece& piece);
  void finish(Node& node);
  void note(const SeenStep& step);
  void say_words();
  bool is_behind(const Node& node, std::int64_t step) const;
  void say_first();

  observers::Observer& observer_;
  std::map<std::int32_t, Node> nodes_;
  std::int64_t first_step_ = 0;
  /// Until all nodes that the hub named have said from where on. Bounded by `kUntakenMax`.
  std::vector<std::variant<SeenPiece, SeenStep>> early_;
  std::map<std::int64_t, observers::ObservedStep> words_;
  std::int64_t newest_word_ = 0;  ///< Of any node.
  std::int64_t said_ = 0;         ///< Step of the newest word that the observer saw.
  std::int64_t parts_ = 0, steps_ = 0, missed_before_ = 0, broken_ = 0;
};

}  // namespace troupe::actors
