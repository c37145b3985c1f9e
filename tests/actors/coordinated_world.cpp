#include <algorithm>
#include <functional>
#include <limits>
#include <memory>

#include "tests/actors/coordinated_job.hpp"

namespace troupe::actors {

void CoordinatedJob::obey(NodeId node) {
  Process& process = processes_[node.index()];
  Order order = std::move(process.orders.front());
  process.orders.pop_front();
  switch (order.kind) {
    case Order::Kind::apply:
      process.plans.clear();  // What it has under way is given up.
      process.words.clear();
      process.prepared = 0;
      process.fetched = order.is_late ? process.has : order.want;
      process.layout = std::move(order);
      process.said.push_back(Fetched{process.layout.generation});
      return;
    case Order::Kind::settle:
      if (order.generation != process.layout.generation) return;
      std::erase_if(process.has, [&](int shard) { return !process.layout.want.contains(shard); });
      if (!process.layout.is_late) process.has = process.layout.want;
      process.fetched.clear();
      process.applied = order.generation;
      process.said.push_back(Applied{order.generation});
      return;
    case Order::Kind::plan: process.plans.push_back(order.step); return;
    case Order::Kind::word: process.words.insert(order.step); return;
  }
}

/// Computes the step under way, or updates by the word on it.
void CoordinatedJob::work(NodeId node) {
  Process& process = processes_[node.index()];
  const std::int64_t step = process.plans.front();
  const DeviceId device{process.layout.device};
  const EpochNumber generation = process.layout.generation;
  if (process.prepared < step) {
    process.prepared = step;
    if (process.layout.is_late) process.fetched = process.layout.want;  // It has come by now.
    engine::Prepared report{step, generation, device, {}, {}};
    const double norm = chance(3) ? std::numeric_limits<double>::infinity() : 1;
    report.norms.push_back({GroupId{device.value}, norm, true});
    process.said.push_back(std::move(report));
    return;
  }
  process.plans.pop_front();
  if (process.layout.is_late) process.has = process.layout.want;
  process.said.push_back(engine::DeviceReport{step, generation, device, {}, {}, {}, {}, 0, {}});
}

bool CoordinatedJob::go_on() {
  std::vector<std::function<void()>> ways;
  if (!asked_.empty()) ways.push_back([this] { take_plan(); });
  if (saving_) ways.push_back([this] { saved(); });
  if (job.phase() == JobPhase::collecting && !saving_ && !job.is_stopping())
    ways.push_back([this] { end(); });
  if (!late_.empty())
    ways.push_back([this] {
      const auto [from, saying] = std::move(late_.back());
      late_.pop_back();
      hear(from, saying);
    });
  for (int i = 0; i < kPlaces; ++i) {
    const NodeId node{i};
    Process& process = processes_[node.index()];
    if (!process.is_alive) continue;
    if (job.phase() == JobPhase::ending)
      ways.push_back([this, node] {
        processes_[node.index()].is_alive = false;
        lose(node);
      });
    if (!process.orders.empty()) ways.push_back([this, node] { obey(node); });
    if (!process.said.empty())
      ways.push_back([this, node] {
        const Saying saying = std::move(processes_[node.index()].said.front());
        processes_[node.index()].said.pop_front();
        hear(node, saying);
      });
    if (process.plans.empty() || process.applied != process.layout.generation) continue;
    const std::int64_t step = process.plans.front();
    if (process.prepared < step || process.words.contains(step))
      ways.push_back([this, node] { work(node); });
  }
  if (ways.empty()) return false;
  ways[below(ways.size())]();
  return true;
}

void CoordinatedJob::disturb() {
  if (waits_for_nodes() && !chance(20)) return come();
  const NodeId node{below(kPlaces)};
  Process& process = processes_[node.index()];
  const bool is_running = job.phase() == JobPhase::training;
  switch (below(12)) {
    case 0:  // Two at once.
      if (chance(30)) {
        const NodeId other{below(kPlaces)};
        for (const NodeId lost : {node, other}) {
          if (!processes_[lost.index()].is_alive) continue;
          processes_[lost.index()].is_alive = false;
          lose(lost);
        }
      }
      return;
    case 1:  // Killed.
      if (!process.is_alive || chance(50)) return;
      process.is_alive = false;
      return lose(node);
    case 2:  // Silent: what it said arrives later, and it is told to end.
      if (!process.is_alive || chance(50)) return;
      for (Saying& saying : process.said) late_.emplace_back(node, std::move(saying));
      process.is_alive = false;
      job.members.fell_silent(node);
      return lose(node);
    case 3:  // Asked to leave, or its process is told to end; or both.
      if (!job.members.takes_part(node) || job.is_stopping() || !is_running) return;
      if (job.loop.is_last_planned() || job.members.staying().size() < 3) return;
      process.is_told = chance(50) || process.is_told;
      job.members.leave(node, {"it leaves", {}, process.is_told});
      return ask();
    case 4: wants_save_ = true; return save_if_wanted();
    case 5:
      if (!is_running || job.loop.is_last_planned()) return;
      wants_layout_ = true;
      return ask();
    case 6:
      if (job.is_over() || !chance(3)) return;
      job.stop();
      return save_if_wanted();
    case 7:  // Joining takes too long.
      if (waits_for_nodes() && job.members.present().size() >= 2) begin_job();
      return;
    case 8:
      if (!is_running || job.is_stopping() || job.loop.is_decided() || chance(80)) return;
      return replace_head();
    case 9:  // The plan cannot be made.
      if (!asked_.empty() && chance(2)) end();
      return;
    default: return come();
  }
}

/// A process gets a place, or one that has one has opened its data.
void CoordinatedJob::come() {
  const NodeId node{below(kPlaces)};
  if (job.is_over() || job.is_stopping()) return;
  const auto place = job.members.free_place(-1, 0);
  if (place) {
    job.members.join(*place, "host", 1, {});
    Process& newcomer = processes_[place->index()];
    std::destroy_at(&newcomer);  // GCC 12 takes an assignment for one of what is not initialized.
    std::construct_at(&newcomer)->is_alive = true;
    return;
  }
  if (job.members[node].phase != Member::Phase::joined) return;
  ++lived_.joins;
  const bool is_newcomer = !waits_for_nodes();
  job.members.ready(node, is_newcomer);
  if (is_newcomer) return ask();
  if (job.members.present().size() == kPlaces) begin_job();
}

std::optional<std::vector<NodeId>> CoordinatedJob::find_layout(const std::set<NodeId>& nodes,
                                                               const StatePlacement& left) {
  const bool is_orphaned = std::any_of(left.begin(), left.end(),
                                       [](const Shard& shard) { return shard.holders.empty(); });
  if (nodes.empty() || is_orphaned || chance(2)) return std::nullopt;
  std::vector<NodeId> workers(nodes.begin(), nodes.end());
  if (workers.size() > 2 && chance(30)) workers.pop_back();  // One is kept spare.
  return workers;
}

/// Two holders each, where there are two.
StatePlacement CoordinatedJob::placement_on(const std::vector<NodeId>& workers) const {
  StatePlacement placement;
  for (int shard = 0; shard < kShards; ++shard) {
    std::set<DeviceSlot> holders;
    for (int copy = 0; copy < 2; ++copy)
      holders.insert({workers[static_cast<std::size_t>(shard + copy) % workers.size()], 0});
    placement.push_back(
        {{ParameterId{shard}, StateKind::value, {}}, {holders.begin(), holders.end()}});
  }
  return placement;
}

/// What counts as a holder's is there.
void CoordinatedJob::check_state() const {
  for (const Shard& shard : job.members.placed())
    for (const DeviceSlot& holder : shard.holders) {
      const Process& process = processes_[holder.node.index()];
      const int key = shard.key.parameter.value;
      REQUIRE(process.is_alive);
      REQUIRE((process.has.contains(key) || process.fetched.contains(key)));
    }
}

}  // namespace troupe::actors
