#include "scheduler/recovery/reconfigure.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace troupe::scheduler {

namespace {

std::string text(std::int64_t value) { return std::to_string(value); }

Error invalid(std::string message, std::string where, std::string fix = {}) {
  return {Errc::invalid_argument, std::move(message), std::move(where), std::move(fix)};
}

// Every node of `ranks` is there with all its ranks, each once.
std::optional<Error> check_whole_nodes(const std::set<std::int64_t>& ranks, std::int64_t per_node,
                                       const std::string& where) {
  for (const auto rank : ranks) {
    if (rank < 0)
      return invalid("rank " + text(rank) + " is negative", where, "ranks count from 0");
    const std::int64_t first = rank / per_node * per_node;
    for (std::int64_t other = first; other < first + per_node; ++other)
      if (!ranks.contains(other))
        return invalid("rank " + text(rank) + " is named without rank " + text(other) +
                           " of the same node; a node comes and goes as a whole",
                       where, "name ranks " + text(first) + " to " + text(first + per_node - 1));
  }
  return std::nullopt;
}

std::optional<Error> check_pipelines(const ReconfigureRequest& request,
                                     std::set<std::int64_t>& present) {
  for (std::size_t i = 0; i < request.pipelines.size(); ++i) {
    const std::string where = "pipelines[" + std::to_string(i) + "]";
    for (const auto rank : request.pipelines[i])
      if (!present.insert(rank).second)
        return invalid("rank " + text(rank) + " stands in two places", where,
                       "name each rank once");
    const std::set<std::int64_t> own(request.pipelines[i].begin(), request.pipelines[i].end());
    if (auto error = check_whole_nodes(own, request.ranks_per_node, where)) return error;
  }
  return std::nullopt;
}

std::optional<Error> check(const ReconfigureRequest& request) {
  if (request.ranks_per_node < 1)
    return invalid("expected at least 1, found " + text(request.ranks_per_node), "ranks_per_node");
  if (request.minimum < 1 || request.minimum % request.ranks_per_node != 0)
    return invalid("expected a positive multiple of the " + text(request.ranks_per_node) +
                       " ranks per node, found " + text(request.minimum),
                   "minimum");
  if (request.fault_tolerance < 0)
    return invalid("expected at least 0, found " + text(request.fault_tolerance),
                   "fault_tolerance");
  std::set<std::int64_t> present;
  if (auto error = check_pipelines(request, present)) return error;
  std::set<std::int64_t> lost, joined;
  for (const auto rank : request.lost) {
    if (!present.contains(rank))
      return invalid("rank " + text(rank) + " is in no pipeline", "lost",
                     "name ranks of `pipelines`");
    lost.insert(rank);
  }
  for (const auto rank : request.joined) {
    if (present.contains(rank) && !lost.contains(rank))
      return invalid("rank " + text(rank) + " is in a pipeline already", "joined",
                     "give joined ranks new numbers");
    if (!joined.insert(rank).second)
      return invalid("rank " + text(rank) + " joins twice", "joined", "name each rank once");
  }
  if (auto error = check_whole_nodes(lost, request.ranks_per_node, "lost")) return error;
  return check_whole_nodes(joined, request.ranks_per_node, "joined");
}

class Reconfigurer {
 public:
  explicit Reconfigurer(const ReconfigureRequest& request) : request_(request) {
    const std::set<std::int64_t> lost(request.lost.begin(), request.lost.end());
    for (const auto& ranks : request.pipelines) {
      RankList left;
      for (const auto rank : ranks)
        if (!lost.contains(rank)) left.push_back(rank);
      std::sort(left.begin(), left.end());
      if (!left.empty()) pipelines_.push_back(std::move(left));
    }
    joined_ = request.joined;
    std::sort(joined_.begin(), joined_.end());
    waiting_ = length(joined_);
  }

  Result<std::vector<RankList>> run() {
    if (auto error = too_few()) return *error;
    borrow();
    merge();
    complete_short();
    sort_all();
    form_new();
    restore_replicas();
    sort_all();
    return std::move(pipelines_);
  }

 private:
  bool is_short(const RankList& ranks) const { return length(ranks) < request_.minimum; }
  static std::int64_t length(const RankList& ranks) {
    return static_cast<std::int64_t>(ranks.size());
  }

  std::optional<Error> too_few() const {
    std::int64_t ranks = length(joined_);
    for (const auto& pipeline : pipelines_) ranks += length(pipeline);
    const std::int64_t possible = ranks / request_.minimum;
    if (possible > request_.fault_tolerance) return std::nullopt;
    // One more than f, without overflow for an absurd f.
    const double needed =
        (static_cast<double>(request_.fault_tolerance) + 1) * static_cast<double>(request_.minimum);
    std::string fix;
    if (needed < 1e15)
      fix = "nearest choice: " +
            text((static_cast<std::int64_t>(needed) - ranks + request_.ranks_per_node - 1) /
                 request_.ranks_per_node) +
            " more nodes";
    if (possible > 0)
      fix += std::string(fix.empty() ? "nearest choice: " : ", or ") +
             "fault_tolerance = " + text(possible - 1);
    return Error{Errc::infeasible,
                 text(ranks) + " ranks remain, but f + 1 = " +
                     text(static_cast<std::int64_t>(
                         std::min(9e18, static_cast<double>(request_.fault_tolerance) + 1))) +
                     " pipelines of at least " + text(request_.minimum) + " ranks are needed",
                 "lost", fix};
  }

  // (ranks, place) of every pipeline: the last is the largest, the later among equals.
  using ByLength = std::set<std::pair<std::size_t, std::size_t>>;

  ByLength by_length() const {
    ByLength found;
    for (std::size_t p = 0; p < pipelines_.size(); ++p) found.emplace(pipelines_[p].size(), p);
    return found;
  }

  // Moves the tail node of the largest pipeline, if that one stays at the minimum or above.
  bool take_from_largest(ByLength& by_length, RankList& to) {
    const auto [size, place] = *by_length.rbegin();
    auto& from = pipelines_[place];
    if (length(from) - request_.ranks_per_node < request_.minimum) return false;
    by_length.erase({size, place});
    const auto tail = from.end() - request_.ranks_per_node;
    to.insert(to.end(), tail, from.end());
    from.erase(tail, from.end());
    by_length.emplace(from.size(), place);
    return true;
  }

  void borrow() {
    auto lengths = by_length();
    for (std::size_t p = 0; p < pipelines_.size(); ++p) {
      auto& pipeline = pipelines_[p];
      if (!is_short(pipeline)) continue;
      lengths.erase({pipeline.size(), p});
      while (is_short(pipeline) && !lengths.empty() && take_from_largest(lengths, pipeline)) {
      }
      lengths.emplace(pipeline.size(), p);
    }
  }

  void merge() {
    std::vector<RankList> healthy, waiting;
    for (auto& pipeline : pipelines_)
      (is_short(pipeline) ? waiting : healthy).push_back(std::move(pipeline));
    for (std::size_t i = 0; i < waiting.size();) {
      RankList joined = std::move(waiting[i++]);
      while (is_short(joined) && i < waiting.size()) append(joined, waiting[i++]);
      if (is_short(joined) && !healthy.empty()) {
        append(joined, healthy.front());
        healthy.erase(healthy.begin());
      }
      healthy.push_back(std::move(joined));
    }
    pipelines_ = std::move(healthy);
  }

  static void append(RankList& to, const RankList& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  void take_joined(RankList& to, std::int64_t count) {
    to.insert(to.end(), joined_.end() - waiting_, joined_.end() - waiting_ + count);
    waiting_ -= count;
  }

  // Only the survivors of a whole cluster below the minimum are still short here, and enough
  // joined: `too_few` saw to it.
  void complete_short() {
    for (auto& pipeline : pipelines_)
      if (is_short(pipeline)) take_joined(pipeline, request_.minimum - length(pipeline));
  }

  void form_new() {
    while (waiting_ >= request_.minimum) take_joined(pipelines_.emplace_back(), request_.minimum);
    // The order of pipelines: by length, then first rank.
    std::set<std::tuple<std::size_t, std::int64_t, std::size_t>> order;
    for (std::size_t p = 0; p < pipelines_.size(); ++p)
      order.emplace(pipelines_[p].size(), pipelines_[p].front(), p);
    while (waiting_ > 0) {
      const auto [size, first, place] = *order.begin();
      order.erase(order.begin());
      auto& pipeline = pipelines_[place];
      const auto added = *(joined_.end() - waiting_);
      take_joined(pipeline, request_.ranks_per_node);
      order.emplace(pipeline.size(), std::min(first, added), place);
    }
  }

  void restore_replicas() {
    if (length_of_all() > request_.fault_tolerance) return;
    for (auto& pipeline : pipelines_) std::sort(pipeline.begin(), pipeline.end());
    auto lengths = by_length();
    while (length_of_all() <= request_.fault_tolerance) {
      RankList made;
      while (is_short(made)) take_from_largest(lengths, made);
      std::sort(made.begin(), made.end());
      lengths.emplace(made.size(), pipelines_.size());
      pipelines_.push_back(std::move(made));
    }
  }

  std::int64_t length_of_all() const { return static_cast<std::int64_t>(pipelines_.size()); }

  void sort_all() {
    for (auto& pipeline : pipelines_) std::sort(pipeline.begin(), pipeline.end());
    std::sort(pipelines_.begin(), pipelines_.end(), [](const RankList& a, const RankList& b) {
      return a.size() != b.size() ? a.size() < b.size() : a.front() < b.front();
    });
  }

  const ReconfigureRequest& request_;
  std::vector<RankList> pipelines_;
  RankList joined_;           // In rank order.
  std::int64_t waiting_ = 0;  // The last of them that have no pipeline yet.
};

}  // namespace

Result<std::vector<RankList>> reconfigure(const ReconfigureRequest& request) {
  if (auto error = check(request)) return *error;
  return Reconfigurer(request).run();
}

}  // namespace troupe::scheduler
