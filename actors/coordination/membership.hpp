// Who is in a job: who has which place and how far each has come with the newest layout, who is to
// come or to go, who misses whom, where the model's state lies and how many losses that bears. And
// the number of the generation, which every change of layout raises.
//
// Pure: time is handed in, and nothing is sent. Single owner, not thread-safe.

#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/link/heartbeat.hpp"
#include "runtime/vocabulary/model_state.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::actors {

/// Who has a place of the job.
struct Member {
  /// missing: nobody has come yet. joined: it was welcomed and opens its data. ready: it has opened
  /// it. fetched: it has the state that the newest layout gives it. applied: it works in it. gone:
  /// it was lost, left or was evicted, and its place is free again.
  enum class Phase : std::uint8_t { missing, joined, ready, fetched, applied, gone };
  Phase phase = Phase::missing;
  std::string host;
  std::int32_t pid = 0;
  bool is_silent = false;  ///< Lost by its silence: its process may still be there.
  std::string how_ended;   ///< "was killed by signal 9", where more is known than its loss.
  Time since;              ///< Of its welcome.
};

/// True from its welcome until it is lost or has ended.
inline bool is_there(const Member& member) {
  return member.phase != Member::Phase::missing && member.phase != Member::Phase::gone;
}

/// True of one that has opened everything and is not lost.
inline bool takes_part(const Member& member) {
  return is_there(member) && member.phase != Member::Phase::joined;
}

/// A node that is to leave as soon as a step has ended.
struct Leaving {
  std::string why;  ///< `stopped by SIGTERM`.
  Time since;
  bool by_signal = false;  ///< Its process ends in any case.
};

/// Nodes whose processes were told to end at about the same time.
struct ToldToEnd {
  std::map<NodeId, std::string> nodes;  ///< Of those that are there, and by what.
  bool is_for_all = false;              ///< More than half of all were: that is meant for the job.
};

/// What a job would be short of without a node; less is better.
struct LossCost {
  std::int64_t last_held = 0;  ///< Shards that no other node holds.
  std::int64_t left_few = 0;   ///< Shards that would have fewer holders than is promised.

  friend auto operator<=>(const LossCost&, const LossCost&) = default;
};

/// Of each node that holds something, where every shard shall keep a holder through the loss of
/// `tolerance` nodes (>= 0). Holders on one node count once. Cost: linear in holders.
std::map<NodeId, LossCost> loss_costs(const StatePlacement& placement, std::int32_t tolerance);

/// Why nothing goes between two that are there: their way broke, and is not made again; or it could
/// not be made, which the next layout tries anew.
enum class NoWay : std::uint8_t { broken, unmade };

/// A node that is there and to which connections broke.
struct Suspect {
  NodeId node;
  std::set<NodeId> others;  ///< At the other ends, whoever noticed.
};

/// Fewer nodes than the job needs take part.
struct Shortage {
  std::int64_t present = 0;
  bool is_new = false;  ///< Since this moment.
  Duration lasted{};
};

/// Nodes that may be lost, whichever, while each shard keeps a holder.
std::int32_t tolerance_of(const StatePlacement& placement);

class Membership {
 public:
  /// `count`: places, all free.
  explicit Membership(std::size_t count = 0) : members_(count) {}

  std::size_t size() const { return members_.size(); }
  const std::vector<Member>& all() const { return members_; }
  /// REQUIRES: there is such a place.
  const Member& operator[](NodeId node) const { return members_[node.index()]; }
  /// The same of any number: false where there is no such place.
  bool has(NodeId node) const { return node.value >= 0 && node.index() < members_.size(); }
  bool is_there(NodeId node) const { return has(node) && actors::is_there((*this)[node]); }
  bool takes_part(NodeId node) const { return has(node) && actors::takes_part((*this)[node]); }
  /// Nodes that take part.
  std::set<NodeId> present() const;
  /// The same, without those that leave.
  std::set<NodeId> staying() const;
  /// The place for one that joins: the wanted one, or with -1 the first that no node of the head's
  /// own, which are the first `local`, will take; one whose node is gone is free again. None: it is
  /// not free.
  std::optional<NodeId> free_place(std::int32_t wanted, std::int32_t local) const;

  /// A process gets this place; whatever the one before kept there is gone. REQUIRES: it is free.
  void join(NodeId node, std::string host, std::int32_t pid, Time now);
  /// It has opened its data, and takes part. `is_newcomer`: the job has begun, and has no work for
  /// it yet.
  void ready(NodeId node, bool is_newcomer);
  /// It is lost, has left or was evicted, and nothing waits for it any more.
  void gone(NodeId node);
  /// As if it had never come.
  void clear(NodeId node);
  /// It has been silent for too long, and counts as lost: its process may still be there.
  void fell_silent(NodeId node);
  /// More is known of its end.
  void ended(NodeId node, std::string how) { members_[node.index()].how_ended = std::move(how); }
  /// Those that joined and have not become ready within this time.
  std::vector<NodeId> late(Time now, Duration limit) const;

  /// Ready ones that no layout has looked at.
  const std::set<NodeId>& newcomers() const { return newcomers_; }
  /// A layout has: they work, or wait for work without being asked about again.
  void place_newcomers(const std::vector<NodeId>& nodes);
  void place_newcomers() { newcomers_.clear(); }
  /// Nodes without work that may get some once more is known.
  void set_aside(std::set<NodeId> nodes) { set_aside_ = std::move(nodes); }
  /// It is: those of them that do not work are newcomers again, and so are these, which may get
  /// more than they have.
  void look_again(const std::set<NodeId>& working, const std::set<NodeId>& unfilled = {});

  /// Who is to leave before the next step.
  const std::map<NodeId, Leaving>& leaving() const { return leaving_; }
  /// Whether the process of one of them ends in any case.
  bool takes_state_away() const;
  /// A signal counts too where somebody has asked for that before; then who asks changes nothing.
  void leave(NodeId node, Leaving leaving);
  /// They stay after all. Returns who.
  std::map<NodeId, Leaving> keep_leaving() { return std::exchange(leaving_, {}); }
  /// The same of those whose processes no signal asked to end.
  std::map<NodeId, Leaving> keep_asked();
  /// Whether somebody waits for another layout, to come or to go.
  bool wants_change() const { return !newcomers_.empty() || !leaving_.empty(); }

  /// A process was told to end. Returns whether it is the first one, for which others are waited
  /// for a moment.
  bool told_to_end(NodeId node, std::string why);
  /// That moment is over: whom it was meant for. None are waiting from now on.
  ToldToEnd settle_told();

  /// Number of the newest layout; 0: there was none.
  EpochNumber generation() const { return generation_; }
  /// Where the job goes on from another head or a checkpoint: never back.
  void go_on_from(EpochNumber generation);
  /// A new layout comes up: all who take part are told of it, and are to fetch and to apply it.
  /// Returns its number.
  EpochNumber begin_generation();
  /// A node has the state that the newest layout gives it. Returns whether all that were told have.
  bool fetched(NodeId node);
  /// A node works in it. Returns whether all that were told do.
  bool applied(NodeId node);

  /// There is no connection between two nodes, as one says. Returns whether that counts: both were
  /// told of the newest layout and are still here.
  bool miss(NodeId reporter, NodeId peer, NoWay why = NoWay::broken);
  /// Who is missed in this generation, or since one before it where a connection broke whose ends
  /// are both still there, and who says so.
  const std::map<NodeId, std::set<NodeId>>& missed() const { return missed_; }
  /// Whether of each two of whom one misses the other one is lost by now.
  bool is_miss_explained() const;
  /// Those that are there, most suspicious first: who lost its network may name many others before
  /// any of them names it, so that what counts first is with how many it lost its connection, then
  /// how many name it. Of equals, as both ends of a cut link are, the one whose loss costs less,
  /// then the higher number. `held`: where state lies; `tolerance`: as for `loss_costs`.
  std::vector<Suspect> suspects(const StatePlacement& held, std::int32_t tolerance) const;

  /// A node and the head have no way for tensors between them, `how`. Returns whether that counts:
  /// it was told of the newest layout and is still here.
  bool miss_head(NodeId node, std::string how, NoWay why = NoWay::broken);
  /// One that there was broke, and nothing goes that way yet. Returns whether that is news.
  bool lose_way_to_head(NodeId node, std::string how);
  /// From now on something does: who has lost its way has none.
  void need_ways_to_head() { cut_off_.merge(std::exchange(late_broken_, {})); }
  /// Nodes that have none, of those there are, and how; also in the generations after, if it broke.
  const std::map<NodeId, std::string>& cut_off() const { return cut_off_; }
  /// Whether that is all of them: then it is the head that is cut off.
  bool is_head_cut_off() const { return cut_off_.size() == told_.size(); }

  /// A first sign that a node may be lost. Counts for this generation, where none is earlier.
  void suspect(NodeId node, Time since);
  /// The first one; none: nothing speaks against it.
  std::optional<Time> suspected_since(NodeId node) const;

  /// Where the model's state lies; empty before the first layout.
  const StatePlacement& placed() const { return placed_; }
  void place(StatePlacement placed) { placed_ = std::move(placed); }
  /// Holders keep nothing but what is in `want`.
  void keep_only(const StatePlacement& want);
  /// Nodes that may be lost, whichever, while all state has a holder.
  std::int32_t losses_borne() const { return tolerance_of(placed_); }

  /// How few take part; none: they are as many as the job needs, or that does not matter now.
  std::optional<Shortage> shortage(bool matters, std::int64_t needed, Time now);

  /// A loss, a join or a leave is dealt with.
  void count_change() { ++changes_; }
  std::int64_t changes() const { return changes_; }

 private:
  bool all_in(Member::Phase phase) const;

  std::vector<Member> members_;
  std::set<NodeId> newcomers_;
  std::set<NodeId> set_aside_;
  std::map<NodeId, Leaving> leaving_;
  std::map<NodeId, std::string> told_to_end_;
  EpochNumber generation_ = 0;
  std::set<NodeId> told_;  ///< Of the newest layout, and not gone since.
  std::map<NodeId, std::set<NodeId>> missed_;
  /// Of these and of `cut_off_` those that the next layout tries anew.
  std::set<std::pair<NodeId, NodeId>> unmade_;
  std::set<NodeId> unmade_to_head_;
  std::map<NodeId, std::string> cut_off_;      ///< Of `told_`.
  std::map<NodeId, std::string> late_broken_;  ///< The same, of ways that nothing needs yet.
  std::map<NodeId, Time> first_signs_;
  StatePlacement placed_;
  std::optional<Time> short_since_;
  std::int64_t changes_ = 0;
};

}  // namespace troupe::actors
