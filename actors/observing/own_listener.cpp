#include "actors/observing/own_listener.hpp"

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "actors/observing/hub_actor.hpp"
#include "actors/observing/presenter_actor.hpp"
#include "runtime/observers/listeners.hpp"

namespace troupe::actors {

namespace {

using Clock = std::chrono::steady_clock;
using Make = decltype(ListenerKind::make);

/// For an actor to ask the hub, and between two looks whether it has.
constexpr std::chrono::seconds kListenTime{10};
constexpr std::chrono::milliseconds kLook{5};

/// What an actor of the user's has thrown; said by its thread, before it is known to have ended.
class Thrown {
 public:
  void say(std::string text) {
    const std::lock_guard lock(mutex_);
    text_ = std::move(text);
  }
  /// Empty: nothing.
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

std::string text_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& fault) {
    return fault.what();
  } catch (...) {
    return "what is no std::exception";
  }
}

ListenerActor::behavior_type own_actor(ListenerActor::pointer self, const Make& make,
                                       const ObservingHubActor& hub, const ListenRequest& request,
                                       const observers::Place& place,
                                       const std::shared_ptr<Thrown>& thrown) {
  // CAF's own handler would print it.
  self->set_exception_handler([thrown](std::exception_ptr& fault) -> caf::error {
    thrown->say(text_of(fault));
    return caf::sec::runtime_error;
  });
  return make(self, hub, request, place);
}

/// All that the job file lets through.
ListenRequest request_of(const std::string& name) {
  ListenRequest request;
  request.who = "observer '" + name + "'";
  request.gradients = request.losses = true;
  request.queue = 1;  // The next part comes when this one was taken.
  return request;
}

struct Settings : caf::actor_system_config {
  Settings() {
    add_message_types<caf::id_block::troupe_observing>();
    set("scheduler.policy", caf::atom("sharing"));
    set("scheduler.max-threads", 1);  // Of the hub and the presenter.
  }
};

/// An actor in the seat of an observer: shows it one thing after the other, each when the one
/// before was taken. So what it is too slow for waits in the queue of the observer.
class OwnListener final : public observers::Observer {
 public:
  OwnListener(const ListenerKind& kind, const observers::Place& place)
      : presenter_(system_.spawn(presenter, &listeners_)),
        hub_(system_.spawn(observing_hub, place.job, std::vector<std::string>(),
                           [](const std::string&) {})) {
    caf::anon_send(presenter_, here_atom::value, caf::actor_cast<caf::strong_actor_ptr>(hub_),
                   place.node);
    let_take();  // The hub has heard of the node when the actor asks it.
    actor_ = system_.spawn<caf::detached>(own_actor, kind.make, hub_, request_of(kind.name), place,
                                          thrown_);
  }
  /// Where the actor hangs, waits with the system for it: on the thread of the observer, which is
  /// left behind then.
  ~OwnListener() override {
    listeners_.on_waiting({});
    caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(hub_, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(presenter_, caf::exit_reason::user_shutdown);
  }
  OwnListener(const OwnListener&) = delete;
  OwnListener& operator=(const OwnListener&) = delete;

  void see(const observers::Observed& part) override {
    wait_until_it_listens();
    listeners_.show(std::make_shared<const observers::Observed>(part));
    let_take();
    check_that_it_listens();
  }
  void see(const observers::ObservedStep& step) override {
    wait_until_it_listens();
    listeners_.show(step);
    let_take();
    check_that_it_listens();
  }
  void end() override {
    caf::scoped_actor self(system_);
    self->request(hub_, kLeaveTimeOfListeners, over_atom::value, std::int32_t{-1},
                  std::string("this node shows nothing any more"))
        .receive([](over_atom) {}, [](const caf::error&) {});
    if (const std::string text = thrown_->text(); !text.empty()) throw std::runtime_error(text);
  }

 private:
  /// Ends: the hub lets go of who takes nothing for `kListenerPatience`.
  void let_take() {
    caf::scoped_actor self(system_);
    self->request(presenter_, caf::infinite, over_atom::value)
        .receive([](over_atom) {}, [](const caf::error&) {});
  }

  void wait_until_it_listens() {
    if (!std::exchange(is_awaited_, false)) return check_that_it_listens();
    caf::scoped_actor self(system_);
    self->monitor(actor_);
    bool lives = true;
    const auto until = Clock::now() + kListenTime;
    while (listeners_.is_empty() && lives && Clock::now() < until)
      self->receive([&](const caf::down_msg&) { lives = false; }, caf::after(kLook) >> [] {});
    check_that_it_listens();
  }

  void check_that_it_listens() const {
    if (!listeners_.is_empty()) return;
    const std::string text = thrown_->text();
    if (!text.empty()) throw std::runtime_error(text);
    throw std::runtime_error("its actor does not listen: it did not ask the hub within " +
                             std::to_string(kListenTime.count()) +
                             " s, left, or took nothing for " +
                             std::to_string(kListenerPatience.count()) + " s");
  }

  observers::Listeners listeners_;  ///< The presenter's, so before the system.
  std::shared_ptr<Thrown> thrown_ = std::make_shared<Thrown>();
  Settings settings_;
  caf::actor_system system_{settings_};
  PresenterActor presenter_;
  ObservingHubActor hub_;
  ListenerActor actor_;
  bool is_awaited_ = true;  ///< It has not been seen to listen yet.
};

}  // namespace

Status register_listener(ListenerKind kind) {
  observers::ObserverKind observer{kind.name, nullptr};
  if (kind.make)
    observer.make = [kind = std::move(kind)](const observers::Place& place) {
      return std::make_unique<OwnListener>(kind, place);
    };
  return observers::register_observer(std::move(observer));
}

}  // namespace troupe::actors
