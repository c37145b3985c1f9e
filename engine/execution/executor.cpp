#include "engine/execution/executor.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <initializer_list>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "engine/execution/device_errors.hpp"
#include "runtime/vocabulary/first_line.hpp"
#include "runtime/vocabulary/joined.hpp"
#include "runtime/vocabulary/library_words.hpp"

namespace troupe::engine {

Executor::Executor(const ParallelPlan& plan, ExecutorOptions options,
                   transport::Transport& transport, Device& device,
                   std::map<StageId, StageProgram*> stages, StandbyState& standby,
                   std::function<void()> wake)
    : plan_(plan),
      options_(std::move(options)),
      stages_(std::move(stages)),
      standby_(standby),
      device_(device),
      wake_(std::move(wake)),
      mailbox_(transport, device, options_.epoch_number, wake_, options_.rows),
      sums_(plan, options_.device,
            [this](GroupId group, std::optional<std::size_t> use) -> at::Tensor& {
              return use ? holder(group, *use).gradients() : standby_.at(group).gradients();
            }) {
  prepared_.step = options_.last_step;
  if (options_.in_hand != nullptr)
    options_.in_hand->belong_to(
        [this](const Action* action, const StageCall& call) { return long_work(action, call); });
}

Executor::~Executor() {
  static_cast<void>(end_work());
  // Who ends has nobody to tell what a stage throws there.
  for (auto& [id, program] : stages_)
    static_cast<void>(let_go(id, "show_to", [&own = *program] { own.show_to(nullptr); }));
  if (options_.in_hand != nullptr) options_.in_hand->belong_to({});
}

at::ScalarType Executor::gradient_dtype() const {
  return row_dtype() == at::kDouble ? at::kDouble : at::kFloat;
}

GroupState& Executor::holder(GroupId group, std::size_t index) {
  const ParameterUse& use = plan_.groups[group.index()].uses[index];
  return stage(use.stage).state(group, use.layer);
}

Status Executor::begin(std::shared_ptr<const IterationPlan> plan, SampleStore& samples) {
  if (auto ended = end_work(); !ended.ok()) return ended;
  iteration_ = std::move(plan);
  units_.emplace(iteration_->samples, iteration_->pieces);
  samples_ = &samples;
  mailbox_.begin(iteration_->step, bound_of_receives());
  next_action_ = next_post_ = 0;
  decision_.reset();
  thrown_.reset();
  is_prepared_ = false;
  shown_ = nullptr;  // Of work that failed.
  prepared_ = {iteration_->step, options_.epoch_number, options_.device, {}, {}, {}};
  report_ = {iteration_->step, options_.epoch_number, options_.device, {}, {}, {}, {}, 0, {}};
  if (auto found = find_host_parameters(); !found.ok()) return found;
  const auto in_host = bytes_in_host();
  if (!in_host.ok()) return in_host.error();
  offloaded_ = report_.peak_offloaded = in_host.value();
  for (auto& [id, own] : host_parameters_) own.changed();
  ready_ns_ = observe::trace_now_ns();
  const bool is_looked_at =
      options_.audience != nullptr && options_.audience->begins(iteration_->step);
  launch(nullptr, [this, &samples, is_looked_at](Outcome& outcome) -> Status {
    for (auto& [id, program] : stages_) {
      turn_to(outcome, {id, "show_to"});
      const bool is_shown = program->show_to(is_looked_at ? this : nullptr);
      if (is_looked_at && !is_shown) note_unseen(id);
      turn_to(outcome, {id, "begin"});
      if (auto begun = program->begin(*iteration_, samples); !begun.ok())
        return returned(nullptr, begun.error(), outcome.asked);
    }
    return Done{};
  });
  return complete_launches();
}

/// Who looks at what a stage does not show would wait for it without a word.
void Executor::note_unseen(StageId id) {
  std::vector<std::string> unseen;
  for (const LayerRun& run : plan_.at(id).runs) {
    const ModuleSpec& module = plan_.model.at(run.module);
    const bool is_wanted =
        std::ranges::any_of(std::initializer_list{observers::Kind::rows, observers::Kind::gradients,
                                                  observers::Kind::losses},
                            [&](observers::Kind kind) { return wants(run.module, kind); });
    if (is_wanted && std::cmp_equal(run.layers.end, module.layers.size()))
      unseen.push_back(module.name);
  }
  if (!unseen.empty())
    options_.audience->note("observers see nothing of " + joined(unseen) +
                            ": their stage is a plug-in's that shows nothing; override `show_to` "
                            "in it, or have them look at other modules");
}

Result<Progress> Executor::advance() {
  const auto& actions = iteration_->actions[options_.device.index()];
  while (next_action_ < actions.size()) {
    if (auto completed = complete_launches(); !completed.ok()) return std::move(completed).error();
    if (auto posted = post_receives(); !posted.ok()) return std::move(posted).error();
    if (auto sent = check_sends(); !sent.ok()) return std::move(sent).error();
    if (options_.yields && options_.yields()) return Progress::yielded;
    const Action& action = actions[next_action_];
    auto ready = is_ready(action);
    if (!ready.ok()) return std::move(ready).error();
    if (!ready.value()) {
      note_wait(action);
      return is_prepared_ && !decision_ ? Progress::committing : Progress::waiting;
    }
    launch(&action, work_of(action));
    ++next_action_;
  }
  if (auto completed = complete_launches(); !completed.ok()) return std::move(completed).error();
  // The next iteration must not reuse a buffer that is still on its way out.
  if (auto sent = check_sends(); !sent.ok()) return std::move(sent).error();
  if (!in_flight_.empty() || !mailbox_.all_sent()) return Progress::waiting;
  finish();
  return Progress::finished;
}

/// Whether all that an action needs from other devices, and from the supervisor, is there.
Result<bool> Executor::is_ready(const Action& action) {
  switch (action.kind) {
    case ActionKind::receive:
    case ActionKind::receive_gradient:
    case ActionKind::relay:
    case ActionKind::relay_gradient:
    case ActionKind::receive_content:
    case ActionKind::reduce_partial:
    case ActionKind::reduce:
    case ActionKind::reduce_relay: return has_arrived(action);
    case ActionKind::reduce_receive: return has_sum(action);
    case ActionKind::commit: return is_decided();
    case ActionKind::fetch_state: return have_gone(ActionKind::offload_state);
    case ActionKind::evict_parameters:
    case ActionKind::optimizer_step: return may_update();
    default: return have_gone(ActionKind::evict_parameters);
  }
}

/// Puts an action's work behind all before it; what it leaves is taken by `complete_launches`.
void Executor::launch(const Action* action, Work work) {
  auto outcome = std::make_shared<Outcome>();
  auto launched = device_.launch(
      [this, action, outcome, work = std::move(work)]() -> Status {
        const Presence presence(options_.in_hand, action);
        const auto told = [&](const std::string& what, std::string fix = {}) {
          return describe(action, what, std::move(fix), outcome->asked);
        };
        try {
          return work(*outcome);
        } catch (const c10::Error& error) {
          const std::string words = error.what_without_backtrace();
          const auto refused = indeterminate_operator(words);
          const std::string& what = refused ? *refused : words;
          if (!is_about_memory(what)) outcome->thrown = what;
          outcome->is_device_lost = is_device_lost(error);
          if (outcome->is_device_lost) return told(what, kDeviceFix);
          if (!is_about_memory(what))
            return told("LibTorch: " + what, refused ? kIndeterminateFix : "");
          // As a GPU's allocator says it, which keeps to the promise.
          const bool is_kept = what.find("out of memory") != std::string::npos;
          return told("LibTorch: " + first_line(what) + promise_words(options_.memory),
                      memory_fix(options_.memory, is_kept));
        } catch (const std::bad_alloc&) {
          return told("out of memory" + promise_words(options_.memory),
                      memory_fix(options_.memory, /*is_kept=*/false));
        } catch (...) {
          outcome->thrown = thrown_words();
          return told(*outcome->thrown);
        }
      },
      wake_);
  if (options_.in_hand != nullptr) options_.in_hand->launched(action, launched);
  in_flight_.push_back(
      {action, std::exchange(taken_, {}), std::move(outcome), std::move(launched)});
}

/// Takes what completed work has left, in the order of the list.
Status Executor::complete_launches() {
  while (!in_flight_.empty() && in_flight_.front().launch->done()) {
    const InFlight done = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (options_.in_hand != nullptr) options_.in_hand->taken();
    if (!done.launch->status().ok()) {
      const Error& why = done.launch->status().error();
      const bool is_lost = done.outcome->is_device_lost || done.launch->is_device_lost();
      if (done.outcome->thrown || is_lost)
        thrown_ = failed_work(done.action, done.outcome->thrown.value_or(why.message), why);
      if (is_lost) thrown_->by_device = true;
      return why;
    }
    complete(done);
    if (auto kept = check_memory(done); !kept.ok()) return kept;
  }
  return Done{};
}

void Executor::complete(const InFlight& done) {
  const std::int64_t cpu_begin_ns = observe::thread_cpu_ns();
  Outcome& outcome = *done.outcome;
  for (const Parcel& parcel : outcome.parcels) mailbox_.send(parcel);
  for (const auto& key : done.taken) mailbox_.release(key);
  for (const MeasuredChunk& chunk : outcome.measured) prepared_.norms.push_back(norm_of(chunk));
  report_.hashes.insert(report_.hashes.end(), outcome.hashes.begin(), outcome.hashes.end());
  if (outcome.activations)
    report_.peak_activations =
        std::max(report_.peak_activations, *outcome.activations + mailbox_.held());
  note_moved(done);
  for (Shown& shown : outcome.shown)
    options_.audience->show(observed(*done.action, std::move(shown)));
  note_times(done, done.launch->cpu_ns() + observe::thread_cpu_ns() - cpu_begin_ns);
  if (done.action != nullptr) follow_sum(*done.action, outcome.entered);
}

/// After a computation: what was allocated for it is there.
Status Executor::check_memory(const InFlight& done) const {
  if (!done.outcome->activations || !options_.memory.is_given()) return Done{};
  return check_promise(options_.memory, *done.outcome->activations + mailbox_.held(),
                       "in step " + std::to_string(iteration_->step) + " on device " +
                           std::to_string(options_.device.index()));
}

/// What of a group's sum begins when an action of it has completed.
void Executor::follow_sum(const Action& action, const at::Tensor& entered) {
  const bool is_call = action.group.valid() && sums_.is_call(action.group);
  if (is_call && action.kind == ActionKind::reduce_send)
    options_.calls->enter(action.group, entered, wake_);
  // The sum is on its way; who waits for it need not wait for its norm.
  if (action.kind == ActionKind::reduce ||
      (is_call && action.kind == ActionKind::reduce_receive && sums_.measures(action.group)))
    launch(nullptr, measure(action.group));
}

void Executor::note_times(const InFlight& done, std::int64_t cpu_ns) {
  // The slice begins when the device turned to the action, so that waiting shows.
  const std::int64_t begin_ns = std::exchange(ready_ns_, done.launch->end_ns());
  if (done.action != nullptr) {
    auto event = observe::trace_event(*iteration_, options_.device, *done.action,
                                      static_cast<std::int64_t>(c10::elementSize(row_dtype())));
    event.begin_ns = begin_ns;
    report_.events.push_back(event);
  } else if (report_.events.empty()) {
    return;  // The beginning.
  }
  report_.events.back().end_ns = ready_ns_;
  report_.events.back().cpu_ns += cpu_ns;
  // Of rows and sums the plan knows; of what is offloaded the stage alone.
  if (done.action != nullptr && moves_memory(done.action->kind))
    report_.events.back().bytes = done.outcome->moved.count();
}

/// Counts what is in host memory.
void Executor::note_moved(const InFlight& done) {
  if (done.action == nullptr) return;
  const ActionKind kind = done.action->kind;
  if (kind == ActionKind::fetch_parameters) away_.erase(done.action->stage);
  offloaded_ += done.outcome->taken;
  if (kind == ActionKind::offload) offloaded_ += done.outcome->moved;
  if (kind == ActionKind::fetch) offloaded_ -= done.outcome->moved;
  report_.peak_offloaded = std::max(report_.peak_offloaded, offloaded_);
}

/// What fails behind PREPARED is no error here: who is prepared needs no peer. A call that fails is
/// told all the same until the step is decided: who waits for its rows must not be blamed for it.
Status Executor::check_sends() {
  Status sent = mailbox_.check();
  note_copy();
  if (!sent.ok() && options_.rows != nullptr && !decision_) note_failed_call(sent.error());
  if (const auto copy = mailbox_.failed_copy()) {  // Also behind PREPARED: others wait for it.
    const Error& why = copy->status().error();
    const Error told =
        describe(nullptr, why.message, copy->is_device_lost() ? kDeviceFix : why.fix);
    thrown_ = failed_work(nullptr, why.message, told);
    thrown_->by_device = copy->is_device_lost();
    return told;
  }
  if (!is_prepared_) return sent;
  mailbox_.forget_ended_sends();
  return Done{};
}

/// Whether COMMIT or DISCARD is there. Before it all work has completed and is reported.
Result<bool> Executor::is_decided() {
  if (decision_) return true;
  if (!in_flight_.empty()) return false;
  if (!is_prepared_)
    if (auto told = take_losses(); !told.ok()) return std::move(told).error();
  is_prepared_ = true;
  return false;
}

Status Executor::take_losses() {
  for (auto& [id, program] : stages_) {
    auto told = ask(id, "losses", [this, &own = *program] {
      for (auto& loss : own.losses()) prepared_.losses.push_back(std::move(loss));
    });
    if (told.ok())
      told = ask(id, "auxiliary", [this, &own = *program] {
        for (auto& loss : own.auxiliary()) prepared_.auxiliary.push_back(std::move(loss));
      });
    if (!told.ok()) return told;
  }
  return Done{};
}

void Executor::decide(const Decision& decision) {
  if (!decision_) decision_ = decision;
}

/// A checkpoint that is being copied holds the first optimizer step of an iteration up, and
/// parameters that are to leave.
bool Executor::may_update() {
  const bool is_discarded = decision_ && !decision_->commit;
  const bool free = !options_.may_update || is_discarded || options_.may_update();
  const std::int64_t now_ns = observe::trace_now_ns();
  if (!free && held_up_ns_ == 0) held_up_ns_ = now_ns;
  if (free && held_up_ns_ != 0)
    report_.stall_ms += static_cast<double>(now_ns - std::exchange(held_up_ns_, 0)) / 1e6;
  return free;
}

void Executor::finish() {
  report_.peak_received = mailbox_.peak();
  iteration_.reset();
}

/// Nothing of the iteration is under way any more. What COMMIT has launched is completed: a holder
/// must not be left with half an update.
Status Executor::end_work() {
  Status ended = Done{};
  if (decision_ && decision_->commit) {
    put_back_state();
    device_.wait();
    for (const InFlight& update : in_flight_)
      if (ended.ok() && !update.launch->status().ok()) ended = update.launch->status();
  }
  device_.drop();
  if (options_.calls != nullptr) options_.calls->give_up();
  if (options_.rows != nullptr) options_.rows->give_up();
  in_flight_.clear();
  if (options_.in_hand != nullptr) options_.in_hand->dropped();
  taken_.clear();
  // Where an update failed before they went back.
  for (const GroupId group : std::exchange(fetched_, {}))
    if (auto forgot = forget_state(group); ended.ok() && !forgot.ok()) ended = std::move(forgot);
  if (auto back = put_back_parameters(); ended.ok() && !back.ok()) ended = back;
  return ended;
}

Status Executor::abandon() {
  Status ended = end_work();
  mailbox_.begin(0, {});
  for (auto& [id, program] : stages_)
    if (auto dropped = let_go(id, "abandon", [&own = *program] { own.abandon(); });
        ended.ok() && !dropped.ok())
      ended = std::move(dropped);
  iteration_.reset();
  return ended;
}

}  // namespace troupe::engine
