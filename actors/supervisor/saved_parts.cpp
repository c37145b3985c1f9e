#include "actors/supervisor/saved_parts.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "actors/supervisor/supervisor_end.hpp"
#include "actors/supervisor/supervisor_last_save.hpp"
#include "actors/supervisor/supervisor_records.hpp"
#include "actors/supervisor/supervisor_save.hpp"
#include "engine/profiling/profile_check.hpp"
#include "runtime/state/checkpoint.hpp"
#include "runtime/state/incomplete_save.hpp"
#include "runtime/vocabulary/joined.hpp"
#include "scheduler/layout/layout_request.hpp"

namespace troupe::actors {

namespace {

using Self = SupervisorSelf;

/// One that was lost with the head before never showed its host.
std::string holder_text(const Membership& members, NodeId node) {
  return members[node].host.empty() ? "node " + std::to_string(node.value)
                                    : describe(members, node);
}

std::vector<state::SavedParameter> parameters_of(const SupervisorState& state) {
  std::vector<state::SavedParameter> parameters;
  for (const ParameterInfo& info : state.resources->setup.parameters)
    parameters.push_back(state::saved_as(info));
  return parameters;
}

}  // namespace

std::filesystem::path folder_of(const SupervisorState& state) {
  return std::filesystem::absolute(state.resources->setup.job.checkpoint_dir());
}

WorthSaving worth_saving(const SupervisorState& state, const StatePlacement& left) {
  const bool goes_back = state.saves.last_step > 0 && next_try(state) > 0;
  return worth_saving(left, has_unsaved(state), goes_back);
}

bool leave_out_lost_holders(SupervisorState& state) {
  if (state.lost_while_collected.empty()) return true;
  StatePlacement left = state.job.left();
  add_orphans(state.job.held(), left, state.stopping.orphans);
  const bool is_worth_it = worth_saving(state, left) != WorthSaving::nothing;
  if (!is_worth_it) state.stopping.unsaved = "what is left is no whole model";
  state.job.members.place(std::move(left));
  return is_worth_it;
}

std::vector<state::MissingShard> missing_shards(const SupervisorState& state) {
  std::vector<state::MissingShard> missing;
  for (const Shard& shard : state.job.members.placed()) {
    if (!shard.holders.empty()) continue;
    std::vector<std::string> names;
    if (const auto known = state.stopping.orphans.find(shard.key);
        known != state.stopping.orphans.end())
      for (const NodeId node : known->second) names.push_back(holder_text(state.job.members, node));
    missing.push_back({shard.key, joined_by_and(names)});
  }
  return missing;
}

state::CheckpointManifest manifest_of(const SupervisorState& state, const Save& save) {
  const HeadResources& resources = *state.resources;
  state::CheckpointManifest manifest;
  manifest.job = resources.setup.job.job.name;
  manifest.build = resources.build;
  manifest.written_at = engine::utc_now();
  manifest.dtype = resources.setup.job.train.dtype;
  manifest.progress = save.progress;
  manifest.parameters = parameters_of(state);
  for (const auto& [device, keys] : save.writers) {
    const SaveReport& share = save.shares.at(device);
    for (const ShardKey& key : keys)
      manifest.shards.push_back({key, static_cast<std::int32_t>(manifest.files.size())});
    manifest.files.push_back({share.file, share.bytes, share.sha256});
  }
  std::sort(manifest.shards.begin(), manifest.shards.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  manifest.missing = save.missing;
  return manifest;
}

std::filesystem::path name_of(const SupervisorState& state, const Save& save) {
  const std::int64_t step = save.progress.step;
  if (save.missing.empty()) return state::checkpoint_folder(folder_of(state), step);
  return state::incomplete_folder(folder_of(state), step, state.resources->incarnation);
}

void note_part_saved(Self self, const Save& save, observe::RunEvent event) {
  auto& state = self->state;
  state.stopping.part = "what is left of step " + std::to_string(save.progress.step) +
                        " is saved (" + name_of(state, save).string() +
                        "), which is not all of the model: nobody held any more " +
                        state::missing_words(parameters_of(state), save.missing);
  state.resources->logger.warning(state.stopping.part + "; " +
                                  scheduler::byte_text(static_cast<double>(event.copy_bytes)) +
                                  " written");
  std::set<NodeId> holders;
  for (const auto& [key, nodes] : state.stopping.orphans)
    holders.insert(nodes.begin(), nodes.end());
  event.kind = "incomplete";
  event.nodes = {holders.begin(), holders.end()};
  event.why = state.stopping.part;
  event.tolerance_left = 0;
  self->send(state.actors.recorder, std::make_shared<const observe::RunEvent>(std::move(event)));
}

std::string way_on_from_part(const SupervisorState& state, GoesOn who) {
  if (state.saves.last_step > 0) return how_to_go_on(state, who);
  return "no checkpoint is whole: put another save of this step that has what is missing beside "
         "it, and the same command with --resume goes on; or begin anew with --fresh";
}

}  // namespace troupe::actors
