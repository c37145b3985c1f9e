#include "app/observing_hub.hpp"

#include <algorithm>
#include <caf/all.hpp>
#include <chrono>
#include <future>
#include <utility>

#include "actors/link/heartbeat.hpp"
#include "actors/link/system.hpp"
#include "app/control_file.hpp"
#include "app/keys.hpp"
#include "app/pipe_signal.hpp"
#include "app/run_argument.hpp"
#include "engine/profiling/this_machine.hpp"
#include "runtime/files/look_up.hpp"
#include "runtime/observe/run_facts.hpp"

namespace troupe::app {

namespace {

using namespace actors;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAnswerTime{10};
constexpr double kTryMinS = 0.1, kTryMaxS = 1;

/// Where a job is reached, and the key to it.
struct Way {
  HostPort address;
  KeySource key;
};

/// It is a run folder where one is there, or where it cannot be an address.
bool is_run_folder(const std::string& job) {
  return files::is_folder(job) || !parse_host_port(job).ok();
}

/// Nobody does in this folder: its job has ended, or never told.
Error nobody_runs(const std::string& job, Error otherwise) {
  const auto facts = observe::read_run_facts(job);
  if (!facts.ok() || !facts.value().end) return otherwise;
  const observe::RunEnd& end = *facts.value().end;
  return {Errc::not_found,
          "its job has ended (" + observe::minute_text(end.time_s) + ", exit code " +
              std::to_string(end.exit_code) + ")",
          job, "see what it recorded: troupe report " + job};
}

Result<Way> way_to(const std::string& job, const std::string& key_file) {
  if (!is_run_folder(job)) {
    const auto address = parse_host_port(job).value();
    auto key = node_key(key_file, "", address);
    if (!key.ok()) return std::move(key).error();
    return Way{address, std::move(key).value()};
  }
  if (auto there = check_run_folder(job); !there.ok()) return std::move(there).error();
  const auto file = read_control(job);
  if (!file.ok())
    return file.error().code == Errc::not_found ? nobody_runs(job, file.error()) : file.error();
  const bool is_here = file.value().host == engine::host_name();
  auto address = parse_host_port(is_here ? file.value().local : file.value().far);
  if (!address.ok()) return std::move(address).error();
  return Way{std::move(address).value(),
             [key = file.value().key]() -> Result<door::JobKey> { return key; }};
}

/// What the last attempt met, without the time that it took.
Error nobody_answers(Error last, const std::string& job, double patience_s) {
  const std::string kLast = "the last attempt: ";
  const auto at = last.message.find(kLast);
  last.message = "no job answers there within " + seconds_text(patience_s) +
                 (at == std::string::npos ? "" : ": " + last.message.substr(at + kLast.size()));
  last.fix = "look whether the job still runs" +
             (is_run_folder(job) ? ": " + job + "/train.log" : ", and whether it listens there");
  return last;
}

/// In short tries: where the head was lost, the run folder says where the next one is.
Result<SupervisorActor> find_head(caf::actor_system& system, const std::string& job,
                                  const std::string& key_file, double patience_s) {
  const auto deadline = Clock::now() + seconds(patience_s);
  for (;;) {
    const auto way = way_to(job, key_file);
    if (!way.ok()) return way.error();
    const double left_s = std::chrono::duration<double>(deadline - Clock::now()).count();
    auto found = find_supervisor(system, way.value().address, way.value().key,
                                 std::clamp(left_s, kTryMinS, kTryMaxS));
    if (found.ok() || found.error().code != Errc::timed_out) return found;
    if (left_s <= kTryMaxS) return nobody_answers(std::move(found).error(), job, patience_s);
  }
}

}  // namespace

}  // namespace troupe::app

namespace troupe {

std::unique_ptr<caf::actor_system_config> observing_settings() {
  return std::make_unique<actors::SystemConfig>();
}

Result<actors::ObservingHubActor> find_observing_hub(caf::actor_system& system,
                                                     const std::string& job,
                                                     const std::string& key_file,
                                                     double patience_s) {
  const app::WithoutPipeSignal while_it_shakes_hands;
  // Its handle is the way to the head's process.
  const auto head = app::find_head(system, job, key_file, patience_s);
  if (!head.ok()) return head.error();
  auto promise = std::make_shared<std::promise<caf::strong_actor_ptr>>();
  auto found = promise->get_future();
  actors::look_up(system, head.value().node(), actors::kObservingHub, app::kAnswerTime,
                  [promise](const caf::strong_actor_ptr& hub) { promise->set_value(hub); });
  if (found.wait_for(app::kAnswerTime) != std::future_status::ready)
    return Error{Errc::timed_out, "the job did not answer", job,
                 "look whether its head is stopped or crowded"};
  const auto hub = found.get();
  if (!hub)
    return Error{Errc::unavailable, "the job shows nothing to others, or just ends", job,
                 "use the troupe that the job runs"};
  return caf::actor_cast<actors::ObservingHubActor>(hub);
}

}  // namespace troupe
