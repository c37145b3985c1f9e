#include "actors/observing/hub_actor.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/vocabulary/printable.hpp"

namespace troupe::actors {

namespace {

using Self = ObservingHubActor::stateful_pointer<ObservingHubState>;
using Listener = ObservingHubState::Listener;

constexpr std::chrono::seconds kLook{1};
constexpr std::size_t kWhoMax = 200;

ListenerActor actor_of(const Listener& listener) {
  return caf::actor_cast<ListenerActor>(listener.handle);
}

PresenterActor presenter(const caf::strong_actor_ptr& handle) {
  return caf::actor_cast<PresenterActor>(handle);
}

caf::error refusal(const std::string& why, const std::string& fix) {
  return caf::make_error(caf::sec::runtime_error, why, fix);
}

std::uint64_t untaken(const Listener& listener) {
  std::uint64_t sum = 0;
  for (const auto& [node, weight] : listener.untaken) sum += weight;
  return sum;
}

std::string wish_words(const ListenRequest& request) {
  std::string words;
  for (const auto& [wanted, word] : {std::pair{request.rows, "rows"},
                                     {request.gradients, "gradients"},
                                     {request.losses, "losses"}})
    if (wanted) words += (words.empty() ? "" : ", ") + std::string(word);
  return (words.empty() ? "steps" : words) +
         (request.module.empty() ? "" : " of " + printable(request.module));
}

/// A listener that leaves, until all nodes have said what they had for it.
struct Leaver {
  Listener listener;
  std::string why;
  caf::typed_response_promise<ShownCount> answer;  ///< Where it waits for one.
  std::size_t nodes = 0;                           ///< That have not said.
};

/// What a listener may ask for, within bounds.
ListenRequest bounded(ListenRequest request) {
  if (request.who.size() > kWhoMax) request.who.resize(kWhoMax);
  request.who = printable(request.who);
  request.every_steps = std::max<std::int64_t>(request.every_steps, 1);
  request.queue = std::clamp<std::int64_t>(request.queue, 1, kQueueMax);
  return request;
}

void answer_if_all_left(ObservingHubState& state) {
  if (state.is_over && state.listeners.empty() && state.leaving == 0 && state.all_left.pending())
    state.all_left.deliver(over_atom::value);
}

void tick(Self self) {
  if (std::exchange(self->state.ticks, true)) return;
  self->delayed_send(self, kLook, lives_atom::value);
}

void say_farewell(Self self, Leaver& leaver) {
  auto& state = self->state;
  ShownCount all;
  for (const auto& [node, count] : leaver.listener.counts) {
    all.shown += count.shown;
    all.dropped += count.dropped;
  }
  state.tell(leaver.listener.request.who + " looks no more: " + leaver.why + "; it was shown " +
             std::to_string(all.shown) + " parts and missed " + std::to_string(all.dropped));
  if (leaver.answer.pending()) leaver.answer.deliver(all);
  --state.leaving;
  answer_if_all_left(state);
}

/// It is told of when nodes have said what it missed: their last word on a step may be old.
void let_go(Self self, std::uint64_t id, const std::string& why,
            caf::typed_response_promise<ShownCount> answer = {}) {
  auto& state = self->state;
  auto gone = state.listeners.extract(id);
  if (gone.empty()) return;
  ++state.leaving;
  auto leaver = std::make_shared<Leaver>(
      Leaver{std::move(gone.mapped()), why, std::move(answer), state.nodes.size()});
  const auto said = [self, leaver] {
    if (--leaver->nodes == 0) say_farewell(self, *leaver);
  };
  for (const auto& [node, handle] : state.nodes)
    self->request(presenter(handle), kCountTime, gone_atom::value, id)
        .then(
            [leaver, said, node = node](const ShownCount& count) {
              leaver->listener.counts[node] = count;
              said();
            },
            [said](const caf::error&) { said(); });
  if (state.nodes.empty()) say_farewell(self, *leaver);
}

/// Who has sent the message at hand.
auto find_listener(Self self) {
  return std::ranges::find_if(self->state.listeners, [&](const auto& one) {
    return one.second.handle == self->current_sender();
  });
}

/// Whether it is from this process.
bool is_own(Self self) {
  return self->current_sender() && self->current_sender()->node() == self->node();
}

caf::error no_module(const ObservingHubState& state, const std::string& name) {
  std::string names;
  for (const auto& module : state.modules) names += (names.empty() ? "" : ", ") + module;
  return caf::make_error(caf::sec::invalid_argument,
                         "no module is called '" + printable(name.substr(0, kWhoMax)) + "'",
                         "name one of " + names + ", or leave it out for all");
}

caf::result<ListenWelcome> listen(Self self, const ListenRequest& request) {
  auto& state = self->state;
  if (request.version != kObservingVersion)
    return refusal("it speaks version " + std::to_string(request.version) +
                       " of the messages for observers, the job " +
                       std::to_string(kObservingVersion),
                   "build it against the troupe that the job runs");
  if (state.is_over || !self->current_sender()) return refusal("the job ends", "none needed");
  if (!request.module.empty() &&
      std::ranges::find(state.modules, request.module) == state.modules.end())
    return no_module(state, request.module);
  if (state.listeners.size() >= kListenersMax)
    return refusal(std::to_string(kListenersMax) + " look at this job already",
                   "end one of them first");
  if (find_listener(self) != state.listeners.end())
    return refusal("it looks at this job already", "listen with another actor");
  const std::uint64_t id = ++state.last_id;
  Listener& listener = state.listeners[id];
  listener.handle = self->current_sender();
  listener.request = bounded(request);
  listener.took = self->clock().now();
  self->monitor(listener.handle);
  ListenWelcome welcome{state.job, {}};
  for (const auto& [node, handle] : state.nodes) {
    welcome.nodes.push_back(node);
    self->send(presenter(handle), listen_atom::value, id, listener.request);
  }
  state.tell(listener.request.who + " looks at " + wish_words(listener.request));
  tick(self);
  return welcome;
}

void took(Self self, std::int32_t node, std::uint64_t weight) {
  auto& state = self->state;
  const auto found = find_listener(self);
  if (found == state.listeners.end()) return;
  const auto left = found->second.untaken.find(node);
  const auto at = state.nodes.find(node);
  if (left == found->second.untaken.end() || at == state.nodes.end()) return;
  weight = std::min(weight, left->second);  // Nobody takes more than there was.
  if (weight == 0) return;
  left->second -= weight;
  found->second.took = self->clock().now();
  self->send(presenter(at->second), took_atom::value, found->first, weight);
}

void node_gone(Self self, std::int32_t node) {
  auto& state = self->state;
  state.nodes.erase(node);
  for (auto& [id, listener] : state.listeners) {
    listener.untaken.erase(node);
    self->send(actor_of(listener), gone_atom::value, node);
  }
}

/// Whether a process that listens has sent this: it shows nothing.
bool is_of_a_listener(Self self, const caf::strong_actor_ptr& sender) {
  return sender->node() != self->node() &&
         std::ranges::any_of(self->state.listeners, [&](const auto& one) {
           return one.second.handle->node() == sender->node();
         });
}

void node_here(Self self, std::int32_t node) {
  auto& state = self->state;
  const auto handle = self->current_sender();
  if (!handle || is_of_a_listener(self, handle)) return;
  if (const auto old = state.nodes.find(node); old != state.nodes.end() && old->second != handle)
    node_gone(self, node);  // Another process has its place.
  state.nodes[node] = handle;
  self->monitor(handle);
  for (const auto& [id, listener] : state.listeners)
    self->send(presenter(handle), listen_atom::value, id, listener.request);
}

/// The place of the presenter at hand; none: it has none, or lost it.
std::optional<std::int32_t> sending_node(Self self) {
  for (const auto& [node, handle] : self->state.nodes)
    if (handle == self->current_sender()) return node;
  return std::nullopt;
}

/// To its listener, under the name of the node that it came from.
template <class Seen>
void pass_on(Self self, Seen& seen) {
  auto& state = self->state;
  const auto node = sending_node(self);
  const auto found = state.listeners.find(seen.listener);
  if (!node || found == state.listeners.end()) return;
  Listener& listener = found->second;
  if (untaken(listener) == 0) listener.took = self->clock().now();
  listener.untaken[*node] += weight_of(seen);
  seen.node = *node;
  if constexpr (std::is_same_v<Seen, SeenStep>) listener.counts[*node] = {seen.shown, seen.dropped};
  self->send(actor_of(listener), std::move(seen));
}

void look(Self self) {
  auto& state = self->state;
  state.ticks = false;
  std::vector<std::uint64_t> stuck;
  for (const auto& [id, listener] : state.listeners) {
    self->send(actor_of(listener), lives_atom::value);
    if (untaken(listener) > 0 && self->clock().now() - listener.took > kListenerPatience)
      stuck.push_back(id);
  }
  for (const std::uint64_t id : stuck) {
    const std::string why =
        "it took nothing for " + std::to_string(kListenerPatience.count()) + " s";
    self->send(actor_of(state.listeners.at(id)), gone_atom::value, why);
    let_go(self, id, why);
  }
  if (!state.listeners.empty()) tick(self);
}

void left(Self self, const caf::down_msg& down) {
  auto& state = self->state;
  const auto is_it = [&](const caf::strong_actor_ptr& handle) {
    return caf::actor_cast<caf::actor_addr>(handle) == down.source;
  };
  for (const auto& [id, listener] : state.listeners)
    if (is_it(listener.handle)) return let_go(self, id, "it left");
  for (const auto& [node, handle] : state.nodes)
    if (is_it(handle)) return node_gone(self, node);
}

caf::result<over_atom> over(Self self, std::int32_t exit_code, const std::string& why) {
  auto& state = self->state;
  if (!is_own(self)) return refusal("it is no part of the head", "none needed");
  state.is_over = true;
  if (state.listeners.empty()) return over_atom::value;
  for (const auto& [id, listener] : state.listeners)
    self->send(actor_of(listener), over_atom::value, exit_code, why);
  state.all_left = self->make_response_promise<over_atom>();
  return state.all_left;
}

}  // namespace

ObservingHubActor::behavior_type observing_hub(Self self, std::string job,
                                               std::vector<std::string> modules,
                                               std::function<void(const std::string&)> tell) {
  self->state.job = std::move(job);
  self->state.modules = std::move(modules);
  self->state.tell = std::move(tell);
  self->set_down_handler([self](const caf::down_msg& down) { left(self, down); });
  return {
      [self](listen_atom, const ListenRequest& request) { return listen(self, request); },
      [self](took_atom, std::int32_t node, std::uint64_t weight) { took(self, node, weight); },
      [self](gone_atom) -> caf::result<ShownCount> {
        const auto found = find_listener(self);
        if (found == self->state.listeners.end()) return refusal("it does not listen", "listen");
        auto answer = self->make_response_promise<ShownCount>();
        let_go(self, found->first, "it left", answer);
        return answer;
      },
      [self](here_atom, std::int32_t node) { node_here(self, node); },
      [self](here_atom, std::uint64_t id, std::int64_t first_step) {
        const auto node = sending_node(self);
        const auto found = self->state.listeners.find(id);
        if (node && found != self->state.listeners.end())
          self->send(actor_of(found->second), here_atom::value, *node, first_step);
      },
      [self](SeenPiece& piece) { pass_on(self, piece); },
      [self](SeenStep& step) { pass_on(self, step); },
      [self](over_atom, std::int32_t code, const std::string& why) {
        return over(self, code, why);
      },
      [self](lives_atom) {
        if (is_own(self)) look(self);
      },
  };
}

}  // namespace troupe::actors
