// A job without processes: the supervisor's values, told what happens and asked what follows as the
// supervisor's actor does it, and a clock-work in place of nodes, scheduler and disk.

#pragma once

#include <catch2/catch_test_macros.hpp>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "actors/coordination/coordinator.hpp"

namespace troupe::actors {

/// What a node is told.
struct Order {
  enum class Kind : std::uint8_t { apply, settle, plan, word };
  Kind kind = Kind::apply;
  EpochNumber generation = 0;
  std::int64_t step = 0;
  int device = -1;          ///< Its own in the layout; -1: none.
  std::set<int> want = {};  ///< Shards that the layout gives it.
  bool is_late = false;     ///< It gets what it lacks of them during the first step.
};

/// What a node says.
struct Fetched {
  EpochNumber generation = 0;
};
struct Applied {
  EpochNumber generation = 0;
};
using Saying = std::variant<Fetched, Applied, engine::Prepared, engine::DeviceReport>;

/// A process in a place of the job, and what is on its way to and from it.
struct Process {
  bool is_alive = false;
  bool is_told = false;  ///< To end: it does, whatever the job makes of that.
  std::deque<Order> orders;
  std::deque<Saying> said;
  Order layout;  ///< That it was told of last.
  EpochNumber applied = 0;
  std::deque<std::int64_t> plans;  ///< Steps of the layout that it has not finished.
  std::int64_t prepared = 0;       ///< The newest of them that it said so of.
  std::set<std::int64_t> words;
  std::set<int> has, fetched;  ///< Shards, of the last step that it finished.
};

/// What jobs lived through.
struct Lived {
  std::int64_t steps = 0, layouts = 0, losses = 0, joins = 0, leaves = 0, heads = 0, done = 0;
};

class CoordinatedJob {
 public:
  static constexpr int kPlaces = 5;
  static constexpr int kShards = 4;

  CoordinatedJob(std::mt19937_64& draw, Lived& lived, std::int64_t steps);

  /// Something that was begun goes one step on: a node does what it was told, a message arrives, a
  /// plan or a save is done. False: there is nothing of the kind.
  bool go_on();
  /// Something happens that nobody asked for.
  void disturb();

  bool has_ended() const { return job.phase() == JobPhase::ended; }
  /// Whether nothing but nodes is missing.
  bool waits_for_nodes() const { return job.phase() == JobPhase::joining; }
  std::int64_t recorded() const { return recorded_; }

  Coordinator job{};

 private:
  std::size_t below(std::size_t count) { return draw_() % count; }
  bool chance(int percent) { return below(100) < static_cast<std::size_t>(percent); }

  // What the actor does.
  void follow(Move move);
  void ask();
  bool change_members();
  void bring_up(const std::vector<NodeId>& workers, StatePlacement want, bool is_late);
  void regroup(const std::vector<NodeId>& workers);
  void lose(NodeId node);
  void decide(std::int64_t step);
  void finish_step();
  void take_plan();
  void hear(NodeId from, const Saying& saying);
  void begin_job();
  void end();
  void end_if_all_gone();
  void saved();
  void save_if_wanted();
  void replace_head();

  // What others do.
  void obey(NodeId node);
  void work(NodeId node);
  void come();
  std::optional<std::vector<NodeId>> find_layout(const std::set<NodeId>& nodes,
                                                 const StatePlacement& left);
  StatePlacement placement_on(const std::vector<NodeId>& workers) const;
  void tell(NodeId node, Order order) {
    processes_[node.index()].orders.push_back(std::move(order));
  }
  void check_state() const;

  std::mt19937_64& draw_;
  Lived& lived_;
  std::int64_t steps_;
  std::vector<Process> processes_ = std::vector<Process>(kPlaces);
  std::vector<std::pair<NodeId, Saying>> late_;  ///< Of processes that count as lost.
  std::vector<NodeId> workers_;                  ///< Of the newest layout, device by device.
  std::vector<NodeId> found_;                    ///< Of the layout that is to come up.
  std::vector<NodeId> joined_, drained_;         ///< By it.
  std::deque<EpochNumber> asked_;                ///< Plans of these layouts are being made.
  std::optional<std::int64_t> saving_;           ///< Step whose state is written.
  std::int64_t saved_step_ = 0;
  bool wants_save_ = false, wants_layout_ = false, is_warm_ = false;
  EpochNumber generation_ = 0;  ///< The newest one that was begun.
  EpochNumber lost_in_ = 0;     ///< Generation of the newest loss that was borne; 0: none.
  std::int64_t recorded_ = 0;
  std::set<std::int64_t> committed_;
  std::set<std::tuple<EpochNumber, std::int64_t, int>> heard_;  ///< PREPARED that arrived.
};

}  // namespace troupe::actors
