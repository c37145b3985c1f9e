#include "app/taking_over.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include "app/control_file.hpp"
#include "app/terminal.hpp"
#include "engine/run/run_lock.hpp"
#include "runtime/files/read_stream.hpp"
#include "runtime/job/changed_keys.hpp"
#include "runtime/observe/run_facts.hpp"
#include "runtime/state/incomplete_save.hpp"

namespace troupe::app {

namespace fs = std::filesystem;

namespace {

/// A head writes at the end of each step and whenever something happens; a step may take long.
constexpr std::chrono::minutes kQuietest{30};

/// Until a search of a node that goes on has come round.
constexpr double kSearchS = 5;

/// The head's own affairs, and what nodes never look at.
constexpr std::array<std::string_view, 9> kHeadKeys = {
    "cluster.listen",      "cluster.key", "cluster.min_nodes", "cluster.spares", "recovery.",
    "cluster.local_nodes", "observe.",    "scheduler.profile", "checkpoint."};

/// How long ago a file of the run was written.
std::chrono::seconds quiet_for(const fs::path& run) {
  const auto now = fs::file_time_type::clock::now();
  auto newest = std::chrono::seconds::max();
  for (const char* name : {"metrics.jsonl", "train.log", "iterations.jsonl", "control"}) {
    std::error_code code;
    const auto written = fs::last_write_time(run / name, code);
    if (!code)
      newest = std::min(newest, std::chrono::duration_cast<std::chrono::seconds>(now - written));
  }
  return newest;
}

}  // namespace

bool may_have_waiting_nodes(const job::Job& job, const ResumeWish& wish) {
  if (wish.fresh || job.cluster.head_timeout_s <= 0) return false;
  const fs::path& run = job.job.run_dir;
  const auto facts = observe::read_run_facts(run);
  if (!facts.ok() || facts.value().end || !read_control(run).ok()) return false;
  const std::chrono::duration<double> timeout(job.cluster.head_timeout_s);
  return quiet_for(run) < kQuietest + timeout;
}

bool may_save_for_nodes(const job::Job& job, const ResumeWish& wish) {
  if (may_have_waiting_nodes(job, wish)) return true;
  const auto facts = observe::read_run_facts(job.job.run_dir);
  return facts.ok() && facts.value().end && facts.value().end->exit_code == kResumable &&
         !state::incomplete_saves_in(job.checkpoint_dir()).empty();
}

Result<job::LoadedJob> load_to_save(const fs::path& file, const fs::path& node_job,
                                    const std::vector<std::string>& overrides) {
  // First: its plug-ins are those of this machine. What else it says is of no use here.
  if (!node_job.empty()) job::read_job(node_job, {});
  const auto text = files::read_whole(file);
  if (!text)
    return Error{Errc::not_found, "the run's job file cannot be read", file.string(),
                 "look whether this machine sees the run folder"};
  auto reading = job::parse_job(*text, file.string(), overrides, job::Paths::of_another_machine);
  if (!reading.ok()) return std::move(reading.problems.front());
  return std::move(reading.loaded);
}

bool goes_back(const job::Job& job, bool has_checkpoint) {
  return has_checkpoint && job.recovery.from_checkpoint;
}

double gathering_window_s(const job::Cluster& cluster) {
  return cluster.heartbeat_timeout_s + kSearchS;
}

Status check_same_job(const job::Job& job, const engine::DataIdentity& data,
                      const JobProgress& live) {
  if (data.records != live.data.records || data.hash != live.data.hash)
    return Error{Errc::invalid_argument,
                 "nodes of this run wait for their head with the state of step " +
                     std::to_string(live.step) +
                     ", and have opened other data: " + std::to_string(live.data.records) +
                     " samples, now there are " + std::to_string(data.records),
                 "data.sources",
                 "set the data back, or wait until the nodes have saved and ended "
                 "(cluster.head_timeout_s): then samples may be appended"};
  const fs::path file = job.job.run_dir / "resolved.toml";
  auto before = job::load_job(file, {});
  if (!before.ok()) return std::move(before).error();
  auto changes = job::changed_keys(before.value().job, job);
  std::erase_if(changes, [](const job::ChangedKey& change) {
    return std::any_of(kHeadKeys.begin(), kHeadKeys.end(),
                       [&](std::string_view key) { return change.key.starts_with(key); });
  });
  if (changes.empty()) return Done{};
  return Error{Errc::invalid_argument,
               "nodes of this run wait for their head with the state of step " +
                   std::to_string(live.step) +
                   ", and run the job as it was; changed since then: " + job::changes_text(changes),
               file.string(),
               "go on as it was (troupe train --resume " + job.job.run_dir.string() +
                   "), end it with a signal, which saves, and change it then; --fresh gives the "
                   "state up"};
}

}  // namespace troupe::app
