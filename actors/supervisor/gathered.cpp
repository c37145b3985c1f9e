#include "actors/supervisor/gathered.hpp"

#include <algorithm>
#include <utility>

#include "runtime/vocabulary/joined.hpp"
#include "scheduler/state/state_moves.hpp"

namespace troupe::actors {

namespace {

bool is_of(const NodeHolding& holding, EpochNumber epoch_number) {
  return holding.epoch_number == epoch_number || holding.fetched_epoch == epoch_number;
}

/// The newest layout that somebody turned over to, which is done only where all have fetched it.
void find_layout(const std::map<NodeId, NodeHolding>& holdings, Gathered& gathered) {
  for (const auto& [node, holding] : holdings) {
    gathered.newest_epoch = std::max(gathered.newest_epoch, holding.newest_epoch);
    gathered.save_number = std::max(gathered.save_number, holding.save_number);
    if (holding.epoch_number <= gathered.epoch_number) continue;
    gathered.epoch_number = holding.epoch_number;
    gathered.plan = holding.plan;
    gathered.arriving = holding.arriving;
  }
  // A step was decided: all were PREPARED, with all that was to come.
  for (const auto& [node, holding] : holdings)
    if (holding.epoch_number == gathered.epoch_number && holding.arriving.empty())
      gathered.arriving.clear();
}

/// Why a node that is in another layout than others is of no use.
std::string other_layout(const NodeHolding& holding, EpochNumber others) {
  if (holding.epoch_number == 0)
    return "it has not turned over to its first layout, others are in layout " +
           std::to_string(others);
  return "it holds the state of layout " + std::to_string(holding.epoch_number) +
         ", others that of " + std::to_string(others);
}

void set_aside(Gathered& gathered, NodeId node, std::string why) {
  gathered.members.erase(node);
  gathered.must_settle.erase(node);
  gathered.must_finish.erase(node);
  gathered.strays[node] = std::move(why);
}

}  // namespace

bool is_finishing(const NodeHolding& holding) {
  return !holding.verdicts.empty() && holding.verdicts.back().note.step > holding.progress.step;
}

Gathered weigh(const std::map<NodeId, NodeHolding>& holdings) {
  Gathered gathered;
  find_layout(holdings, gathered);
  const std::set<NodeId> places = gathered.plan.nodes();
  // A node without a device hears of no step.
  const auto works = [&](NodeId node) { return places.contains(node); };
  const NodeHolding* newest = nullptr;
  std::map<std::int64_t, engine::StepVerdict> verdicts;
  for (const auto& [node, holding] : holdings) {
    if (!is_of(holding, gathered.epoch_number)) {
      gathered.strays[node] = other_layout(holding, gathered.epoch_number);
      continue;
    }
    if (!works(node)) continue;
    if (newest == nullptr || holding.progress.step > newest->progress.step) newest = &holding;
    for (const auto& verdict : holding.verdicts) verdicts.emplace(verdict.note.step, verdict);
  }
  if (newest == nullptr) return gathered;
  gathered.progress = newest->progress;
  const bool is_word_known = verdicts.contains(gathered.progress.step);
  for (const auto& [node, holding] : holdings) {
    if (gathered.strays.contains(node)) continue;
    // Steps whose samples are all bad run on no device, and nodes do not hear of them.
    const auto behind = std::count_if(verdicts.begin(), verdicts.end(), [&](const auto& verdict) {
      return verdict.first > holding.progress.step && verdict.first <= gathered.progress.step;
    });
    const bool is_level = holding.progress.step == gathered.progress.step;
    if (works(node) && !is_level && (behind != 1 || !is_word_known)) {
      gathered.strays[node] = "it holds the state of step " +
                              std::to_string(holding.progress.step) + ", others that of " +
                              std::to_string(gathered.progress.step);
      continue;
    }
    gathered.members.insert(node);
    if (holding.epoch_number != gathered.epoch_number) gathered.must_settle.insert(node);
    if (works(node) && !is_level) gathered.must_finish.insert(node);
  }
  for (auto& [step, verdict] : verdicts)
    if (step <= gathered.progress.step) gathered.verdicts.push_back(std::move(verdict));
  return gathered;
}

void set_aside(Gathered& gathered, const std::set<NodeId>& late) {
  for (const NodeId node : late)
    set_aside(gathered, node,
              "it did not finish step " + std::to_string(gathered.progress.step) + " in time");
}

void set_unreached(Gathered& gathered, const std::map<NodeId, Error>& unreached) {
  for (const auto& [node, why] : unreached)
    set_aside(gathered, node, "the head does not reach it for tensors: " + why.message);
}

StatePlacement state_before(const Gathered& gathered, const std::vector<ParameterInfo>& parameters,
                            Dtype dtype) {
  ParallelPlan plan = gathered.plan;
  std::erase_if(plan.standbys, [&](const Standby& standby) {
    return std::find(gathered.arriving.begin(), gathered.arriving.end(), standby) !=
           gathered.arriving.end();
  });
  return scheduler::place_state(plan, parameters, dtype);
}

StatePlacement held_by_members(const Gathered& gathered, StatePlacement before) {
  for (Shard& shard : before)
    std::erase_if(shard.holders, [&](const DeviceSlot& device) {
      return !gathered.members.contains(device.node);
    });
  return before;
}

std::vector<NodeId> missing_nodes(const Gathered& gathered) {
  std::vector<NodeId> missing;
  for (const NodeId node : gathered.plan.nodes())
    if (!gathered.members.contains(node)) missing.push_back(node);
  return missing;
}

std::string missing_text(const Gathered& gathered) {
  std::vector<std::string> words;
  for (const NodeId node : missing_nodes(gathered)) {
    const auto stray = gathered.strays.find(node);
    words.push_back("node " + std::to_string(node.value) +
                    (stray == gathered.strays.end() ? "" : " (" + stray->second + ")"));
  }
  return joined_by_and(words);
}

}  // namespace troupe::actors
