#include "actors/observing/presenter_actor.hpp"

#include <algorithm>
#include <utility>

namespace troupe::actors {

namespace {

using Self = PresenterActor::stateful_pointer<PresenterState>;
using Progress = PresenterState::Progress;
using Id = observers::Listeners::Id;

ObservingHubActor hub_of(const PresenterState& state) {
  return caf::actor_cast<ObservingHubActor>(state.hub);
}

/// The next piece of a part. One without values is a piece too.
SeenPiece next_piece(Id id, Progress& progress) {
  const observers::Observed& part = *progress.part;
  SeenPiece piece;
  piece.listener = id;
  piece.step = part.step;
  piece.module = part.module;
  piece.kind = static_cast<std::uint8_t>(part.kind);
  piece.replica = part.replica;
  piece.microbatch = part.microbatch;
  piece.part = part.part;
  piece.width = part.width;
  piece.dtype = static_cast<std::uint8_t>(part.values.dtype());
  piece.bytes_all = observers::bytes_of(part);
  piece.begin = progress.begin;
  if (progress.begin == 0) {
    piece.ids = part.ids;
    piece.rows = part.rows;
    piece.first_rows = part.first_rows;
  }
  const auto* bytes = static_cast<const std::uint8_t*>(part.values.data());
  const std::size_t end = std::min<std::size_t>(progress.begin + kPieceBytesMax, piece.bytes_all);
  if (bytes != nullptr) piece.bytes.assign(bytes + progress.begin, bytes + end);
  progress.begin = end;
  if (end == piece.bytes_all) progress.part.reset();
  return piece;
}

SeenStep word(Id id, const observers::ObservedStep& step,
              const observers::Listeners::Count& count) {
  return {id,
          0,
          step.step,
          step.committed,
          step.loss,
          step.grad_norm,
          step.learning_rate,
          step.tokens,
          step.trained_tokens,
          step.ids,
          count.shown,
          count.dropped};
}

/// Shows one listener what waits, as long as it has not too much to take.
void show(Self self, Id id, Progress& progress) {
  auto& state = self->state;
  while (progress.untaken < kUntakenMax) {
    if (!progress.part) {
      auto item = state.listeners->take(id);
      if (!item) return;
      if (!item->step && !item->part) {
        self->send(hub_of(state), here_atom::value, id, state.listeners->next_step());
        continue;
      }
      if (item->step) {
        auto seen = word(id, *item->step, state.listeners->count(id));
        progress.untaken += weight_of(seen);
        self->send(hub_of(state), std::move(seen));
        continue;
      }
      progress.part = std::move(item->part);
      progress.begin = 0;
    }
    auto piece = next_piece(id, progress);
    progress.untaken += weight_of(piece);
    self->send(hub_of(state), std::move(piece));
  }
}

void answer_if_all_taken(PresenterState& state) {
  const bool is_idle = std::ranges::all_of(
      state.progress, [](const auto& one) { return one.second.untaken == 0 && !one.second.part; });
  if (is_idle && state.all_taken.pending()) state.all_taken.deliver(over_atom::value);
}

void show_all(Self self) {
  for (auto& [id, progress] : self->state.progress) show(self, id, progress);
}

void forget_listeners(PresenterState& state) {
  state.listeners->remove_all();
  state.progress.clear();
  answer_if_all_taken(state);
}

}  // namespace

PresenterActor::behavior_type presenter(Self self, observers::Listeners* listeners) {
  self->state.listeners = listeners;
  const auto handle = caf::actor_cast<PresenterActor>(self);
  listeners->on_waiting([weak = caf::actor_cast<caf::weak_actor_ptr>(handle)] {
    if (const auto there = caf::actor_cast<caf::strong_actor_ptr>(weak))
      caf::anon_send(caf::actor_cast<PresenterActor>(there), waiting_atom::value);
  });
  // Its listeners came by that head; they come again by the next one.
  self->set_down_handler([self](const caf::down_msg& down) {
    auto& state = self->state;
    if (!state.hub || caf::actor_cast<caf::actor_addr>(state.hub) != down.source) return;
    state.hub = nullptr;
    forget_listeners(state);
  });
  return {
      [self](here_atom, const caf::strong_actor_ptr& hub, std::int32_t node) {
        auto& state = self->state;
        if (!hub || hub == state.hub) return;
        forget_listeners(state);
        state.hub = hub;
        state.node = node;
        self->monitor(hub);
        self->send(hub_of(state), here_atom::value, node);
      },
      [self](listen_atom, std::uint64_t id, const ListenRequest& request) {
        auto& state = self->state;
        if (!state.hub || self->current_sender() != state.hub) return;
        observers::Watch watch;
        watch.module = request.module;
        watch.rows = request.rows;
        watch.gradients = request.gradients;
        watch.losses = request.losses;
        watch.every_steps = request.every_steps;
        watch.queue = request.queue;
        state.progress[id] = {};
        self->send(hub_of(state), here_atom::value, id, state.listeners->add(id, watch));
      },
      [self](gone_atom, std::uint64_t id) -> ShownCount {
        const auto count = self->state.listeners->count(id);
        self->state.listeners->remove(id);
        self->state.progress.erase(id);
        answer_if_all_taken(self->state);
        return ShownCount{count.shown, count.dropped};
      },
      [self](took_atom, std::uint64_t id, std::uint64_t weight) {
        const auto found = self->state.progress.find(id);
        if (found == self->state.progress.end()) return;
        Progress& progress = found->second;
        progress.untaken -= std::min(weight, progress.untaken);
        show(self, id, progress);
        answer_if_all_taken(self->state);
      },
      [self](waiting_atom) {
        if (self->state.hub) show_all(self);
      },
      [self](over_atom) -> caf::result<over_atom> {
        auto& state = self->state;
        if (state.hub) show_all(self);
        state.all_taken = self->make_response_promise<over_atom>();
        answer_if_all_taken(state);
        return state.all_taken;
      },
  };
}

}  // namespace troupe::actors
