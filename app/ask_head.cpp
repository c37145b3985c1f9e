#include "app/ask_head.hpp"

#include <caf/all.hpp>
#include <optional>
#include <utility>

#include "actors/link/system.hpp"
#include "app/control_file.hpp"
#include "engine/profiling/this_machine.hpp"
#include "runtime/vocabulary/host_port.hpp"

namespace troupe::app {

namespace {

using namespace actors;

Result<std::string> ask(caf::actor_system& system, const SupervisorActor& supervisor,
                        const ControlRequest& request, std::chrono::milliseconds answer_time) {
  std::optional<Result<std::string>> answer;
  caf::scoped_actor self(system);
  self->request(supervisor, answer_time, control_atom::value, request)
      .receive([&](const std::string& text) { answer = text; },
               [&](const caf::error& error) {
                 const caf::message& context = error.context();
                 if (context.match_elements<std::string, std::string>())
                   answer = Error{Errc::unavailable,
                                  context.get_as<std::string>(0),
                                  {},
                                  context.get_as<std::string>(1)};
                 else
                   answer = Error{Errc::timed_out,
                                  "the job did not answer",
                                  {},
                                  "look whether its head is stopped or crowded"};
               });
  return *std::move(answer);
}

}  // namespace

Result<HeadAnswer> ask_head(const std::filesystem::path& run, const ControlRequest& request,
                            const AskTimes& times) {
  const auto file = read_control(run);
  if (!file.ok()) return file.error();
  const bool is_here = file.value().host == engine::host_name();
  const std::string joins = is_here ? file.value().local : file.value().far;
  const auto address = parse_host_port(joins);
  if (!address.ok()) return address.error();
  SystemConfig config;
  caf::actor_system system(config);
  auto supervisor = find_supervisor(
      system, address.value(), [&]() -> Result<door::JobKey> { return file.value().key; },
      times.find_s);
  if (!supervisor.ok()) {
    Error error = std::move(supervisor).error();
    error.fix = "look whether the job still runs: " + run.string() +
                "/train.log; where its head was lost, its nodes wait a while for another: troupe "
                "train --resume " +
                run.string();
    return error;
  }
  auto answer = ask(system, supervisor.value(), request, times.answer);
  supervisor = Error{Errc::cancelled, {}, {}, {}};  // Lets go of it before the system ends.
  if (!answer.ok()) return std::move(answer).error();
  return HeadAnswer{std::move(answer).value(), joins};
}

}  // namespace troupe::app
