// A job as far as others look at it, without its nodes: a hub, presenters, and listeners that note.

#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/observing/hub_actor.hpp"
#include "actors/observing/presenter_actor.hpp"
#include "tests/actors/test_system.hpp"

namespace troupe::actors {

/// What a listener was told. It takes at once, unless it hangs.
struct Heard {
  std::vector<std::pair<std::int32_t, std::int64_t>> here;
  std::vector<std::int32_t> gone;
  std::vector<SeenPiece> pieces;
  std::vector<SeenStep> steps;
  std::vector<std::string> dismissals;
  std::vector<std::int32_t> ends;
  std::string refusal;
  std::optional<ListenWelcome> welcome;
  bool hangs = false;
  bool leaves = true;                ///< When the job has ended.
  bool lies = false;                 ///< About what it took.
  bool has_enough = false;           ///< It leaves when it hears of the hub.
  std::optional<ShownCount> counts;  ///< Told then.
};

inline ListenerActor::behavior_type listener(ListenerActor::pointer self, Heard* heard,
                                             const ObservingHubActor& hub,
                                             const ListenRequest& request) {
  self->request(hub, std::chrono::seconds(5), listen_atom::value, request)
      .then([heard](const ListenWelcome& welcome) { heard->welcome = welcome; },
            [heard](const caf::error& error) {
              heard->refusal = error.context().get_as<std::string>(0);
            });
  const auto take = [self, heard, hub](const auto& seen) {
    if (heard->hangs) return;
    const std::uint64_t weight = heard->lies ? ~std::uint64_t{0} : weight_of(seen);
    self->send(hub, took_atom::value, seen.node, weight);
    if (heard->lies) self->send(hub, took_atom::value, -5, weight);
  };
  return {
      [heard](here_atom, std::int32_t node, std::int64_t step) {
        heard->here.emplace_back(node, step);
      },
      [heard](gone_atom, std::int32_t node) { heard->gone.push_back(node); },
      [heard, take](const SeenPiece& piece) {
        heard->pieces.push_back(piece);
        take(piece);
      },
      [heard, take](const SeenStep& step) {
        heard->steps.push_back(step);
        take(step);
      },
      [self, heard, hub](lives_atom) {
        if (!std::exchange(heard->has_enough, false)) return;
        self->request(hub, std::chrono::seconds(5), gone_atom::value)
            .then([heard](const ShownCount& count) { heard->counts = count; });
      },
      [self, heard](over_atom, std::int32_t code, const std::string&) {
        heard->ends.push_back(code);
        if (heard->leaves) self->quit();
      },
      [heard](gone_atom, const std::string& why) { heard->dismissals.push_back(why); },
  };
}

/// A part of vision with so many numbers, the first ones 0, 1, 2, ...
inline std::shared_ptr<const observers::Observed> part(
    std::int64_t step, std::size_t count, observers::Kind kind = observers::Kind::rows) {
  auto numbers = std::make_shared<std::vector<float>>(count);
  for (std::size_t i = 0; i < count; ++i) (*numbers)[i] = static_cast<float>(i);
  auto part = std::make_shared<observers::Observed>();
  part->step = step;
  part->module = "vision";
  part->kind = kind;
  part->ids = {"a"};
  part->rows = {static_cast<std::int64_t>(count)};
  part->first_rows = {0};
  part->width = 1;
  part->values = {numbers, numbers->data(), count, Dtype::fp32};
  return part;
}

/// A head and nodes, as far as others look at them.
struct Job {
  TestSystem system;
  std::vector<std::string> log;
  std::deque<observers::Listeners> listeners;  ///< By node; they outlive their presenters.
  std::vector<PresenterActor> presenters;
  ObservingHubActor hub =
      system.get().spawn(observing_hub, "job", std::vector<std::string>{"vision", "llm"},
                         [this](const std::string& line) { log.push_back(line); });

  explicit Job(int nodes) {
    for (int node = 0; node < nodes; ++node) {
      presenters.push_back(system.get().spawn(presenter, &listeners.emplace_back()));
      caf::anon_send(presenters.back(), here_atom::value,
                     caf::actor_cast<caf::strong_actor_ptr>(hub), node);
    }
    system.run();
  }
  ~Job() {
    for (const auto& one : presenters) end(one);
    end(hub);
    system.run();
  }

  template <class Actor>
  static void end(const Actor& actor) {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  }

  ListenerActor listen(Heard& heard, const ListenRequest& request = {}) {
    auto actor = system.get().spawn(listener, &heard, hub, request);
    system.run();
    return actor;
  }

  /// A node computes a part of so many numbers.
  void compute(std::size_t node, std::int64_t step, std::size_t count,
               observers::Kind kind = observers::Kind::rows) {
    listeners[node].begins(step);
    listeners[node].show(part(step, count, kind));
  }
  void decide(std::size_t node, std::int64_t step) {
    observers::ObservedStep word;
    word.step = step;
    word.committed = true;
    word.loss = 0.5;
    word.ids = {"a", "b"};
    listeners[node].show(word);
  }
};

inline constexpr std::size_t kLarge =
    kPieceBytesMax / 4 * 2 + 10;  ///< Numbers of a part of three pieces.

}  // namespace troupe::actors
