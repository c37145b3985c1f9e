// Keeps a job alive: joins nodes, brings up the layout, decides every step, ends the job.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/head/recorder_actor.hpp"
#include "actors/link/heartbeat.hpp"
#include "actors/link/protocol.hpp"
#include "actors/supervisor/gathering.hpp"
#include "engine/setup/job_setup.hpp"
#include "engine/setup/plugin_identity.hpp"
#include "engine/setup/resume.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"

namespace troupe::actors {

/// What the head process gives its supervisor. Outlives it.
struct HeadResources {
  engine::JobSetup setup;
  ParallelPlan plan;
  std::vector<ParallelPlan> later;  ///< Of `debug.layouts`, in order.
  std::string resolved_job;
  std::string build;             ///< Version and commit that nodes must have too.
  std::string run_id = {};       ///< Of the run, kept over its heads.
  std::int64_t incarnation = 0;  ///< Which of these it is, from 1.
  /// Templates for losses under a layout, of samples drawn from the data: for while no batch is
  /// planned. Takes as long as reading headers does. Empty: there are none.
  std::function<Result<scheduler::TemplateSet>(const ParallelPlan&)> draw_templates = {};
  std::int32_t tries = 0;  ///< So often the job has begun again from where it goes on now.
  engine::DataIdentity data;
  std::vector<engine::PluginIdentity> plugins = {};  ///< That the head has loaded.
  std::vector<std::string> stage_kinds = {};         ///< Which all nodes must know.
  std::shared_ptr<engine::RunFolder> folder;
  observe::Console* console = nullptr;
  observe::Logger logger;
  std::unique_ptr<transport::Transport> transport;
  /// Where a job goes on from; no folder: it begins.
  engine::ResumePoint resume = {};
  std::string listen;  ///< Host and port where nodes of other machines join; empty: any free port.
  std::string door;    ///< The same with the port that it is.
  std::string who;     ///< `process 71 on host`: of the head.
  std::optional<GatherWish> gather;  ///< None: no node can be waiting.
  /// Called once with how the job ended.
  std::function<void(JobEnd)> on_end;
};

/// The actors beside a supervisor, and what spawns them. Given from outside, so that a test can put
/// others in their place. `total_steps`: 0 where only the tokens decide.
struct ActorHandles {
  SchedulerActor scheduler;
  RecorderActor recorder;
  KeeperActor keeper;
};
using SpawnActors = std::function<ActorHandles(caf::actor_system&, const SupervisorActor&,
                                               std::int64_t total_steps)>;

struct SupervisorState;
using SupervisorSelf = SupervisorActor::stateful_pointer<SupervisorState>;

/// Starts a supervisor; `resources` outlive it.
SupervisorActor spawn_supervisor(caf::actor_system& system, HeadResources* resources,
                                 SpawnActors spawn);

}  // namespace troupe::actors
