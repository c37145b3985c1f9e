// What is told of work that failed, or that does not return: where it was and of which samples.

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "engine/execution/executor.hpp"
#include "engine/execution/fault_words.hpp"
#include "engine/execution/memory_promise.hpp"
#include "runtime/vocabulary/first_line.hpp"
#include "runtime/vocabulary/user_code.hpp"

namespace troupe::engine {

namespace {

/// The part of a stage that an action works on, or whose rows it moves; none: of no one part.
/// `iteration`: null where there is no action.
std::optional<MessageEnd> place_of(const Action* action, const IterationPlan* iteration) {
  if (action == nullptr || !action->stage.valid()) return std::nullopt;
  if (action->microbatch.valid())
    return MessageEnd{action->stage, action->microbatch, action->part};
  if (!action->message.valid()) return std::nullopt;
  const Message& message = iteration->at(action->message);
  return message.source.stage == action->stage ? message.source : message.destination;
}

/// Whose work an action is that is for no one part. Invalid: no stage's, as on standby.
StageId stage_of(const Action* action) { return action == nullptr ? StageId{} : action->stage; }

}  // namespace

/// The samples of the part that an action works on; none: it is work for no one part.
std::vector<std::string> Executor::ids_of(const Action* action) const {
  std::vector<std::string> ids;
  const auto place = place_of(action, iteration_.get());
  if (!place) return ids;
  for (const std::int32_t unit :
       samples_of(plan_, *iteration_, place->stage, place->microbatch, place->part))
    ids.push_back(iteration_->sample(unit).id);
  return ids;
}

/// What is being caught, in words. A stage of a user's may throw anything.
std::string Executor::thrown_words() {
  try {
    throw;
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

/// What of the job a fault belongs to: a step, or what is asked between two of them.
std::string Executor::step_words() const {
  if (iteration_) return "in step " + std::to_string(iteration_->step);
  return prepared_.step > 0 ? "behind step " + std::to_string(prepared_.step) : "before a step";
}

/// What a stage has thrown (the first line), and where: stages may be a user's.
Error Executor::describe(const Action* action, const std::string& thrown, std::string fix,
                         const StageCall& asked) const {
  if (fix.empty())
    fix =
        "where a plug-in computes there, correct it; else it is a defect: please report it with "
        "the job file and the log";
  std::string message = first_line(thrown);
  if (message.empty()) message = "an error without words";
  message += ", " + step_words() + " on device " + std::to_string(options_.device.index());
  if (action != nullptr) message += ", " + std::string(to_string(action->kind));
  const auto place = place_of(action, iteration_.get());
  if (!place) {
    if (asked.stage.valid())
      message += ", `" + asked.function + "` of " + stage_with_layers(plan_, asked.stage);
    else if (const StageId own = stage_of(action); own.valid())
      message += " of " + stage_with_layers(plan_, own);
    return {Errc::internal, message, {}, std::move(fix)};
  }
  // What layers of ours say of their rows names the samples already.
  const std::string part = part_words(ids_of(action), place->microbatch);
  const bool is_named = message.find(part) != std::string::npos;
  message += " of " + stage_with_layers(plan_, place->stage) + (is_named ? "" : part);
  return {Errc::internal, message, {}, std::move(fix)};
}

/// What a stage has returned in place of a result, told as what it throws; its code, and what it
/// says of the place and the fix, stay.
Error Executor::returned(const Action* action, const Error& error, const StageCall& asked) const {
  Error told = describe(action, error.message, error.fix, asked);
  told.code = error.code;
  told.where = error.where;
  return told;
}

/// In work of no action: it calls this function of a stage's next.
void Executor::turn_to(Outcome& outcome, StageCall call) const {
  outcome.asked = std::move(call);
  if (options_.in_hand != nullptr) options_.in_hand->calls(outcome.asked);
}

/// What a stage throws that is asked beside the work of the list is an error of its step, or behind
/// it. `id`: invalid where the device asks what it keeps without a stage.
Status Executor::ask(StageId id, const std::string& call, const std::function<void()>& asks) {
  const Presence presence(options_.in_hand, nullptr, {id, call});
  try {
    asks();
    return Done{};
  } catch (...) {
    const std::string thrown = thrown_words();
    Error error = describe(nullptr, thrown, {}, {id, call});
    thrown_ = failed_work(nullptr, thrown, error);
    return error;
  }
}

/// What an action is whose work does not return, should nobody wait for it any longer.
LongWork Executor::long_work(const Action* action, const StageCall& call) const {
  LongWork work{options_.device};
  work.work = failed_work(
      action, kNeverReturns,
      describe(action, kNeverReturns,
               "look what a stage waits for or loops in there (`troupe check JOB` tries each stage "
               "alone), or at the device; raise train.stall_timeout_s where it may take so long",
               call));
  work.work.error.code = Errc::timed_out;
  return work;
}

/// What one stage throws keeps no other one from dropping what it has. `id`: as of `ask`.
Status Executor::let_go(StageId id, const std::string& call,
                        const std::function<void()>& tell) const {
  const Presence presence(options_.in_hand, nullptr, {id, call});
  auto told = call_guarded(Errc::internal, [&]() -> Status {
    tell();
    return Done{};
  });
  if (told.ok()) return told;
  return Error{Errc::internal,
               "`" + call + "`" + (id.valid() ? " of stage " + std::to_string(id.index()) : "") +
                   " on device " + std::to_string(options_.device.index()) + " " +
                   first_line(told.error().message),
               {},
               "where the stage is a plug-in's, correct it (`troupe check` tries it); else it is a "
               "defect: please report it with the job file and the log"};
}

/// Nobody knows whose NCCL hangs, or fails: the device that says so first is done without, unless
/// another node turns out to be lost. Returns what to tell: what has no room as of work.
Error Executor::note_failed_call(const Error& error) {
  if (error.code == Errc::infeasible) {
    const Error room = with_promise(error, options_.memory);
    Error told = describe(nullptr, room.message, room.fix);
    told.code = Errc::infeasible;
    return told;
  }
  if (error.code != Errc::timed_out && error.code != Errc::transport_failed) return error;
  thrown_ = failed_work(nullptr, error.message, error);
  thrown_->by_device = true;
  return error;
}

FailedWork Executor::failed_work(const Action* action, const std::string& thrown,
                                 Error error) const {
  FailedWork failed{prepared_.step, options_.epoch_number};
  failed.thrown = first_line(thrown);
  failed.error = std::move(error);
  failed.samples = ids_of(action);
  return failed;
}

}  // namespace troupe::engine
