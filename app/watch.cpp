#include "app/watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <caf/all.hpp>
#include <chrono>
#include <exception>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "actors/link/heartbeat.hpp"
#include "actors/observing/seen_parts.hpp"
#include "app/observing_hub.hpp"
#include "app/pipe_signal.hpp"
#include "engine/profiling/this_machine.hpp"
#include "runtime/files/look_up.hpp"

namespace troupe::app {

namespace {

using namespace actors;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAnswerTime{10};

/// For the hub to say what was missed: no one waits longer for who leaves.
constexpr std::chrono::seconds kLeaveTime{2};

/// A head that was lost is looked for in tries of this length: somebody may want to end it.
constexpr double kTryS = 1;

/// A hub that says nothing for so long is lost, whatever the connection says.
constexpr std::chrono::seconds kSilenceMax{30};

Error refused(const caf::error& error, const std::string& where) {
  const caf::message& context = error.context();
  const bool is_wrong = error == caf::sec::invalid_argument;
  if (context.match_elements<std::string, std::string>())
    return {is_wrong ? Errc::invalid_argument : Errc::unavailable,
            "the job refuses: " + context.get_as<std::string>(0), where,
            context.get_as<std::string>(1)};
  return {Errc::timed_out, "the job did not answer", where,
          "look whether its head is stopped or crowded"};
}

/// Says of what an observer throws where it was thrown.
class Guarded final : public observers::Observer {
 public:
  explicit Guarded(observers::Observer& observer) : observer_(observer) {}

  void see(const observers::Observed& part) override {
    guard("step " + std::to_string(part.step) + ", " + part.module, [&] { observer_.see(part); });
  }
  void see(const observers::ObservedStep& step) override {
    guard("the word on step " + std::to_string(step.step), [&] { observer_.see(step); });
  }
  void end() override {
    guard("its end", [&] { observer_.end(); });
  }

 private:
  template <class Call>
  static void guard(const std::string& where, const Call& call) {
    const std::string fix = "correct the observer; the job goes on without it";
    try {
      call();
    } catch (const std::exception& fault) {
      throw Error{Errc::internal, std::string("the observer throws: ") + fault.what(), where, fix};
    } catch (...) {
      throw Error{Errc::internal, "the observer throws no std::exception", where, fix};
    }
  }

  observers::Observer& observer_;
};

/// One hub, from the welcome to its end.
class Session {
 public:
  enum class End { over, enough, lost };

  Session(caf::actor_system& system, SeenParts& seen, const WatchOptions& options, Watched& watched)
      : self_(system),
        seen_(seen),
        options_(options),
        watched_(watched),
        missed_before_(seen.missed()) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Errors: as a hub refuses, or does not answer.
  Status open(ObservingHubActor hub, const std::string& where) {
    hub_ = std::move(hub);
    self_->monitor(hub_);
    const observers::Watch& what = options_.what;
    ListenRequest request;
    request.who = "process " + std::to_string(getpid()) + " on " + engine::host_name();
    request.module = what.module;
    request.rows = what.rows;
    request.gradients = what.gradients;
    request.losses = what.losses;
    request.every_steps = what.every_steps;
    request.queue = what.queue;
    Status welcomed = Done{};
    self_->request(hub_, kAnswerTime, listen_atom::value, request)
        .receive(
            [&](const ListenWelcome& welcome) {
              watched_.job = welcome.job;
              seen_.begin(welcome.nodes);
            },
            [&](const caf::error& error) { welcomed = refused(error, where); });
    return welcomed;
  }

  /// Shows what comes, and says what was taken behind it. Errors: unavailable: the hub let it go.
  Result<End> follow() {
    std::optional<Result<End>> end;
    auto heard = Clock::now();
    while (!end) {
      bool is_silent = false;
      self_->receive(
          [&](here_atom, std::int32_t node, std::int64_t step) { seen_.here(node, step); },
          [&](gone_atom, std::int32_t node) { seen_.gone(node); },
          [&](SeenPiece& piece) { take(piece); }, [&](SeenStep& step) { take(step); },
          [](lives_atom) {},
          [&](over_atom, std::int32_t code, const std::string& why) {
            watched_.is_over = true;
            watched_.exit_code = code;
            watched_.why = why;
            end = End::over;
          },
          [&](gone_atom, const std::string& why) {
            end = Error{Errc::unavailable,
                        "the job shows it nothing any more: " + why,
                        {},
                        "look at fewer steps, or make the observer faster"};
          },
          [&](const caf::down_msg&) { end = End::lost; },
          caf::after(std::chrono::seconds(1)) >> [&] { is_silent = true; });
      say_what_was_taken();
      if (!is_silent) heard = Clock::now();
      if (is_silent && Clock::now() - heard > kSilenceMax) end = End::lost;
      note_counts();
      const bool is_enough = (options_.steps > 0 && watched_.steps >= options_.steps) ||
                             (options_.goes_on && !options_.goes_on(watched_));
      if (!end && is_enough) end = End::enough;
    }
    if (end->ok() && end->value() != End::enough) seen_.end();  // No more comes of it.
    note_counts();
    if (end->ok() && end->value() == End::enough) leave();
    return *std::move(end);
  }

 private:
  void note_counts() {
    watched_.steps = seen_.steps();
    watched_.parts = seen_.parts();
    watched_.missed = seen_.missed() + seen_.broken();
  }

  /// What nodes dropped since their last word is known to them alone.
  void leave() {
    self_->request(hub_, kLeaveTime, gone_atom::value)
        .receive(
            [&](const ShownCount& count) {
              watched_.missed =
                  std::max(watched_.missed, missed_before_ + count.dropped + seen_.broken());
            },
            [](const caf::error&) {});  // It just goes; what is known stands.
  }

  template <class Seen>
  void take(Seen& seen) {
    const std::int32_t node = seen.node;
    const std::uint64_t weight = weight_of(seen);
    seen_.take(std::move(seen));
    untold_.emplace_back(node, weight);
  }

  /// What is kept for later was not taken: so that it cannot grow.
  void say_what_was_taken() {
    if (seen_.waits_for_nodes()) return;
    for (const auto& [node, weight] : std::exchange(untold_, {}))
      self_->send(hub_, took_atom::value, node, weight);
  }

  caf::scoped_actor self_;
  SeenParts& seen_;
  const WatchOptions& options_;
  Watched& watched_;
  std::int64_t missed_before_;  ///< Where others were its hub.
  ObservingHubActor hub_;
  std::vector<std::pair<std::int32_t, std::uint64_t>> untold_;  ///< By node, what was taken.
};

/// Whether the run's head has left in order: it takes `control` with it.
bool has_left(const std::string& job) {
  return files::is_folder(job) && !files::is_there(std::filesystem::path(job) / "control");
}

Error lost_head(const std::string& job, const Error& why) {
  return {Errc::transport_failed, "the head of the job was lost, and no other came: " + why.message,
          job, "see what became of it (train.log of its run folder), and look again once it runs"};
}

/// Of a hub that was lost it may be that nobody knows it yet.
void wait_a_moment() { std::this_thread::sleep_for(std::chrono::milliseconds(200)); }

Result<Watched> watch_job(const std::string& job, observers::Observer&& observer,
                          const WatchOptions& options) {
  const auto settings = observing_settings();
  std::optional<WithoutPipeSignal> of_its_threads(std::in_place);
  caf::actor_system system(*settings);
  of_its_threads.reset();
  SeenParts seen(observer);
  Watched watched;
  bool was_there = false;
  auto until = Clock::now() + seconds(options.patience_s);
  const auto is_time_left = [&] { return was_there && Clock::now() < until; };
  for (;;) {
    const double left_s = std::chrono::duration<double>(until - Clock::now()).count();
    auto hub = find_observing_hub(system, job, options.key_file,
                                  was_there ? std::min(left_s, kTryS) : left_s);
    if (!hub.ok()) {
      if (!was_there) return std::move(hub).error();
      if (options.goes_on && !options.goes_on(watched)) break;
      if (is_time_left()) {
        wait_a_moment();
        continue;
      }
      if (!has_left(job)) return lost_head(job, hub.error());
      watched.is_over = true;
      watched.exit_code = -1;
      break;
    }
    Session session(system, seen, options, watched);
    if (auto opened = session.open(std::move(hub).value(), job); !opened.ok()) {
      if (!is_time_left()) return std::move(opened).error();
      wait_a_moment();
      continue;
    }
    was_there = true;
    const auto end = session.follow();
    if (!end.ok()) return end.error();
    if (end.value() != Session::End::lost) break;
    until = Clock::now() + seconds(options.patience_s);
  }
  observer.end();
  return watched;
}

}  // namespace

}  // namespace troupe::app

namespace troupe {

Result<Watched> watch(const std::string& job, observers::Observer& observer,
                      const WatchOptions& options) {
  const observers::Watch& what = options.what;
  if (what.every_steps < 1 || what.queue < 1 || what.queue > actors::kQueueMax ||
      !(options.patience_s >= 0))
    return Error{Errc::invalid_argument,
                 "every_steps is at least 1, queue 1 to " + std::to_string(actors::kQueueMax) +
                     ", patience_s at least 0",
                 "WatchOptions", "correct them"};
  try {
    return app::watch_job(job, app::Guarded(observer), options);
  } catch (const Error& thrown) {
    return thrown;
  }
}

}  // namespace troupe
