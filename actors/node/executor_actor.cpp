#include "actors/node/executor_actor.hpp"

#include <pthread.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <utility>

#include "actors/link/exceptions.hpp"
#include "actors/node/device_offers.hpp"
#include "engine/execution/device_place.hpp"
#include "engine/execution/failed_device.hpp"
#include "engine/execution/made_stages.hpp"
#include "runtime/state/checkpoint_manifest.hpp"
#include "scheduler/state/state_moves.hpp"

namespace troupe::actors {

namespace {

using Self = ExecutorActor::stateful_pointer<ExecutorState>;

/// Turns many completions into one message at a time.
std::function<void()> make_wake(Self self) {
  auto pending = std::make_shared<std::atomic<bool>>(false);
  const auto handle = caf::actor_cast<caf::actor>(self);
  // The flag travels with the message, so that it falls before the executor looks.
  return [handle, pending] {
    if (!pending->exchange(true)) caf::anon_send(handle, wake_atom::value, WakeFlag{pending});
  };
}

/// The layout that this device works in, or fetches.
EpochNumber own_epoch(const ExecutorState& state) {
  if (state.next) return state.next->epoch_number;
  return state.configuration ? state.configuration->epoch_number : 0;
}

/// Runs nothing any more in this layout. Returns whether that is a failure: what a newer layout has
/// ended is none; the word of it is on its way.
bool give_up(ExecutorState& state) {
  state.running = false;
  state.has_failed = true;
  state.is_lacking |= state.transfer.has_value();
  state.transfer.reset();
  return state.resources->wanted_epoch <= own_epoch(state);
}

void fail(Self self, Error error) {
  auto& state = self->state;
  if (give_up(state))
    self->send(state.node, failed_atom::value, own_epoch(state), std::move(error));
}

/// Of what a stage, NCCL or a device does the supervisor hears where, too: others may do better.
void fail_with(Self self, std::optional<engine::FailedWork> failed, Error error) {
  if (!failed) return fail(self, std::move(error));
  if (give_up(self->state)) self->send(self->state.node, std::move(*failed));
}

/// This device's number in the layout; invalid where the layout does without it.
DeviceId device_in(const ParallelPlan& plan, const DeviceSlot& slot) {
  const auto found = std::find(plan.devices.begin(), plan.devices.end(), slot);
  return found == plan.devices.end() ? DeviceId{} : DeviceId{found - plan.devices.begin()};
}

/// Groups over NCCL. They take memory as they open.
Status open_calls(const ExecutorState& state, DeviceId device) {
  const ParallelPlan& plan = state.configuration->plan;
  const EpochNumber epoch = state.configuration->epoch_number;
  Status opened = state.sums->open(plan, device, epoch);
  if (opened.ok() && state.rows) opened = state.rows->open(plan, device, epoch);
  if (opened.ok() || !device.valid()) return opened;
  return engine::with_promise(opened.error(),
                              engine::memory_promise(state.resources->setup.job, plan, device));
}

Status build(Self self) {
  auto& state = self->state;
  const engine::JobSetup& setup = state.resources->setup;
  const ParallelPlan& plan = state.configuration->plan;
  const DeviceId device = device_in(plan, state.slot);
  if (auto opened = open_calls(state, device); !opened.ok()) return opened;
  if (!device.valid()) return Done{};
  auto stages = engine::make_stages(
      {plan, {}, setup.modules(), setup.layers, *state.store, &state.resources->masks}, device,
      state.configuration->epoch_number, *state.in_hand);
  if (!stages.ok()) return std::move(stages).error();
  state.stages = std::move(stages).value();
  std::map<StageId, engine::StageProgram*> programs;
  for (const auto& [id, stage] : state.stages) programs[id] = stage.get();
  auto standby = engine::StandbyState::create(plan, device, *state.store, setup.modules());
  if (!standby.ok()) return std::move(standby).error();
  state.standby = std::move(standby).value();
  engine::ExecutorOptions options;
  options.device = device;
  options.row_dtype = setup.layers.dtype;
  options.epoch_number = state.configuration->epoch_number;
  options.last_step = state.last_step;
  options.learning_rate_scales = setup.learning_rate_scales;
  options.adamw = setup.adamw;
  for (const auto& eyes : setup.data.vision) options.picture_scales.push_back(eyes.input.scale);
  options.hash_parameters = setup.job.debug.parameter_hashes;
  options.yields = [self] {
    const auto& now = self->state;
    return now.resources->save_number != now.save_number ||
           now.resources->wanted_epoch != now.configuration->epoch_number;
  };
  options.audience = &state.resources->audience;
  options.in_hand = state.in_hand.get();
  options.calls = state.sums.get();
  options.rows = state.rows.get();
  options.memory = engine::memory_promise(setup.job, plan, device);
  // Others get state that this device gives away, in the step that begins meanwhile.
  options.may_update = [self] { return self->state.saver->may_change() && !self->state.transfer; };
  options.slow_rows = engine::slow_rows(setup.job.debug, plan.model, state.slot.node);
  state.executor = std::make_unique<engine::Executor>(
      plan, std::move(options), *state.resources->transport, *state.device, std::move(programs),
      state.standby, make_wake(self));
  return Done{};
}

void fetch(Self self) {
  auto& state = self->state;
  auto fetched = state.transfer->advance();
  if (!fetched.ok()) return fail(self, std::move(fetched).error());
  if (fetched.value()) state.transfer.reset();
  if (!state.next || state.told_fetched) return;
  // For what arrives late no layout waits, only PREPARED of its first step.
  if (state.transfer && state.next->arriving.empty()) return;
  state.told_fetched = true;
  self->send(state.node, fetched_atom::value, state.slot.local_index, state.next->epoch_number);
}

/// A step that nobody will decide any more. Its gradients go with its stages; what it holds beside
/// them would be in the way of what is fetched.
Status give_up_step(ExecutorState& state) {
  state.queue = {};
  state.running = state.prepared_sent = state.has_failed = false;
  return state.executor ? state.executor->abandon() : Status(Done{});
}

void save(Self self, const SaveOrder& order);

/// An order that came while parameters were in host memory, once they are back, or a last one
/// behind a checkpoint that was given up, once that is written.
void save_what_waits(Self self) {
  auto& state = self->state;
  if (!state.waiting_save || state.saver->busy() ||
      (state.executor && state.executor->has_parameters_away()))
    return;
  save(self, *std::exchange(state.waiting_save, std::nullopt));
}

/// The first half of a change of layout: the state that is here stays, so that the change may fail.
void apply(Self self, const Configuration& configuration) {
  auto& state = self->state;
  const engine::JobSetup& setup = state.resources->setup;
  const Dtype dtype = setup.job.train.dtype;
  at::set_num_threads(setup.job.cluster.threads_per_device);
  pthread_setname_np(pthread_self(), ("device " + std::to_string(state.slot.node.value) + "." +
                                      std::to_string(state.slot.local_index))
                                         .c_str());
  // First of all: what fails from here on is a fault of this layout, and not of one that is over.
  state.next = std::make_unique<Configuration>(configuration);
  state.told_fetched = state.is_lacking = false;
  state.transfer.reset();
  if (!state.store) {
    const job::Cluster& cluster = setup.job.cluster;
    engine::limit_gpu_memory(cluster);
    auto place = engine::usable_place(
        cluster.device,
        engine::device_number(state.slot, state.resources->is_heads_own, cluster.devices_per_node),
        setup.job.train.deterministic);
    if (!place.ok()) return fail(self, std::move(place).error());
    state.store.emplace(state.slot, setup.parameters, dtype, place.value());
    state.saver.emplace(make_wake(self));
    state.device = engine::make_device({setup.job.debug.delayed_device_ms,
                                        static_cast<std::uint64_t>(state.slot.node.value) * 1024 +
                                            static_cast<std::uint64_t>(state.slot.local_index),
                                        setup.job.cluster.threads_per_device, place.value()});
    engine::NcclDeviceOptions calls{place.value(), state.slot};
    calls.call = std::chrono::milliseconds(std::llround(1000 * cluster.sum_timeout_s));
    // A group that does not open is told before the whole layout is late.
    calls.opening = std::chrono::milliseconds(std::llround(750 * cluster.join_timeout_s));
    const auto caller = std::make_shared<engine::NcclDevice>(*state.resources->transport, calls);
    state.sums = std::make_shared<engine::NcclSums>(caller);
    state.resources->losses.add(state.sums);
    if (cluster.rows == "nccl") {
      state.rows = std::make_shared<engine::NcclRows>(caller);
      state.resources->losses.add(state.rows);
    }
  }
  const Status given_up = give_up_step(state);
  // Step 1 is trained again, and others may have these groups then.
  if (!state.is_first_decided) state.first_gradients.clear();
  save_what_waits(self);
  if (!given_up.ok()) return fail(self, given_up.error());
  if (auto room =
          state.store->stage(scheduler::place_state(configuration.plan, setup.parameters, dtype));
      !room.ok())
    return fail(self, room.error());
  state.transfer.emplace(*state.store, setup, configuration.moves, *state.resources->transport,
                         configuration.epoch_number, configuration.checkpoint, make_wake(self),
                         [in_hand = state.in_hand](NodeId from) { in_hand->came(from); });
  fetch(self);
}

/// The second half: stages of the old layout go first, so that gradients are not there twice.
void settle(Self self, EpochNumber epoch_number) {
  auto& state = self->state;
  if (!state.next || state.next->epoch_number != epoch_number) return;
  if (!state.told_fetched || state.is_lacking) return;
  state.executor.reset();
  state.stages.clear();
  state.standby = {};
  state.store->settle(!state.next->arriving.empty());
  state.configuration = std::move(state.next);
  if (auto built = build(self); !built.ok()) {
    const Error& why = built.error();
    return fail_with(self, engine::failed_opening(why, state.device->place(), epoch_number), why);
  }
  self->send(state.node, applied_atom::value, state.slot.local_index, epoch_number);
}

void report_prepared(Self self) {
  auto& state = self->state;
  if (state.prepared_sent) return;
  state.prepared_sent = true;
  const auto& prepared = state.executor->prepared();
  if (prepared.step == 1 && state.resources->setup.job.train.dump_gradients)
    if (auto kept = state.executor->copy_gradients(state.first_gradients); !kept.ok())
      return fail_with(self, state.executor->take_thrown(), kept.error());
  self->send(state.node, prepared);
}

/// Runs until something must be waited for.
void advance(Self self) {
  auto& state = self->state;
  for (;;) {
    if (!state.running) {
      if (state.queue.empty()) return;
      state.last_step = state.queue.front()->step;
      auto begun = state.executor->begin(state.queue.front(), state.resources->samples);
      if (!begun.ok()) return fail_with(self, state.executor->take_thrown(), begun.error());
      state.queue.pop();
      state.running = true;
      state.prepared_sent = false;
    }
    auto progress = state.executor->advance();
    if (!progress.ok()) return fail_with(self, state.executor->take_thrown(), progress.error());
    save_what_waits(self);
    if (progress.value() == engine::Progress::waiting) return;
    if (progress.value() == engine::Progress::yielded)
      return self->send(self, wake_atom::value, std::make_shared<std::atomic<bool>>(false));
    if (progress.value() == engine::Progress::committing) {
      // Holders that lack state could not update it, and who gives it away would.
      if (!state.transfer && !state.is_lacking) report_prepared(self);
      // Without it the step is not given up here: where it is decided all rows have arrived.
      if (auto failed = state.executor->take_thrown()) self->send(state.node, std::move(*failed));
      return;
    }
    state.running = false;
    self->send(state.node, state.executor->take_report());
  }
}

/// What the saver has done since it was looked at last.
void report_saved(Self self) {
  auto& state = self->state;
  const auto share = state.saver ? state.saver->take() : std::nullopt;
  if (!share) return;
  SaveReport report{share->number, state.slot, share->status.ok()};
  if (!report.is_saved) report.error = share->status.error();
  report.file = share->file.name;
  report.bytes = share->file.bytes;
  report.sha256 = share->file.sha256;
  report.copy_ms = share->copy_ms;
  report.write_ms = share->write_ms;
  self->send(state.node, std::move(report));
}

/// No step is decided any more where the state of a job that failed is ordered. One that failed
/// here holds memory that writing may need, and parameters in host memory may never come back:
/// another device has failed, for which this one waits. Both are given up.
Status make_way(ExecutorState& state, const SaveOrder& order) {
  const bool is_away = state.executor && state.executor->has_parameters_away();
  if (!order.is_checked || !(state.has_failed || is_away)) return Done{};
  return give_up_step(state);
}

void save(Self self, const SaveOrder& order) {
  auto& state = self->state;
  report_saved(self);
  if (state.saver && state.saver->busy()) {  // Of the checkpoint before, which was given up.
    state.save_number = order.number;
    if (order.is_last) {  // No step changes the state any more; who ordered it ends the wait.
      state.waiting_save = order;
      return;
    }
    const Error late{Errc::timed_out, "the checkpoint before is still being written", order.folder,
                     "look at the file system of this folder"};
    return self->send(state.node, SaveReport{order.number, state.slot, false, late});
  }
  state.save_number = order.number;
  if (auto way = make_way(state, order); !way.ok())
    return self->send(state.node, SaveReport{order.number, state.slot, false, way.error()});
  if (state.executor && state.executor->has_parameters_away()) {
    state.waiting_save = order;  // They are back before the step is decided.
    return;
  }
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const Shard& shard : order.shards) {
    if (shard.holders.front() != state.slot) continue;
    const ParameterInfo& info = state.store->parameters()[shard.key.parameter.index()];
    tensors.emplace_back(state::tensor_name(state::saved_as(info), shard.key),
                         state.store->held(shard.key));
  }
  if (tensors.empty()) return;
  const std::string name = "state-" + std::to_string(state.slot.node.value) + "." +
                           std::to_string(state.slot.local_index) + ".safetensors";
  state.saver->start(order.number, std::filesystem::path(order.folder) / name, std::move(tensors),
                     !order.is_last, order.is_checked);
}

}  // namespace

ExecutorActor::behavior_type executor(Self self, NodeResources* resources, NodeActor node,
                                      std::int32_t local_index,
                                      std::shared_ptr<engine::WorkInHand> in_hand) {
  self->state.resources = resources;
  self->state.node = node;
  self->state.slot = {resources->node, local_index};
  self->state.in_hand = std::move(in_hand);
  // Checkpoints that were ordered before are others' work.
  self->state.save_number = resources->save_number;
  // Without a lost device the job goes on, as where a step of it fails.
  hear_of_exceptions(self, [self](const std::exception_ptr& thrown) {
    const auto& state = self->state;
    fail_with(self, engine::failed_device(thrown, own_epoch(state)),
              describe_exception("device " + std::to_string(state.slot.local_index), thrown));
  });
  return {
      [self](apply_atom, const Configuration& configuration) { apply(self, configuration); },
      [self](settle_atom, EpochNumber epoch_number) { settle(self, epoch_number); },
      [self](const IterationPlanPtr& plan) {
        self->state.queue.push(plan);
        if (!self->state.running) advance(self);
      },
      [self](const engine::Decision& decision) {
        if (!self->state.running || self->state.executor->prepared().step != decision.step) return;
        self->state.is_first_decided |= decision.step == 1;
        self->state.store->keep_late();
        self->state.executor->decide(decision);
        advance(self);
      },
      [self](wake_atom, const WakeFlag& flag) {
        flag->store(false);
        report_saved(self);
        save_what_waits(self);
        if (self->state.transfer) fetch(self);
        if (self->state.running) advance(self);
      },
      [self](collect_atom, Collection collection) {
        auto offers = offer(self->state, collection);
        if (!offers.ok())
          return fail_with(self, self->state.executor->take_thrown(), offers.error());
        self->send(self->state.node, std::move(offers).value());
      },
      [self](const SaveOrder& order) { save(self, order); },
  };
}

}  // namespace troupe::actors
