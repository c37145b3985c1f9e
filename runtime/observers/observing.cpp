#include "runtime/observers/observing.hpp"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <thread>
#include <utility>

namespace troupe::observers {

namespace {

/// What code of a user's has thrown; empty: nothing.
template <class Call>
std::string thrown_by(const Call& call) {
  try {
    call();
    return {};
  } catch (const std::exception& fault) {
    return std::string("it throws: ") + fault.what();
  } catch (...) {
    return "it throws no std::exception";
  }
}

/// Of each watch its observer's name; behind the second of one name -2, or the next number with
/// which no other one is called so.
std::vector<std::string> folders_of(const std::vector<Watch>& watches) {
  std::set<std::string> taken;
  for (const Watch& watch : watches) taken.insert(watch.name);
  std::map<std::string, int> counts;
  std::vector<std::string> folders;
  for (const Watch& watch : watches) {
    std::string folder = watch.name;
    int& count = ++counts[watch.name];
    if (count > 1) {
      while (!taken.insert(watch.name + "-" + std::to_string(count)).second) ++count;
      folder += "-" + std::to_string(count);
    }
    folders.push_back(std::move(folder));
  }
  return folders;
}

}  // namespace

void Tally::add(const Tally& other) {
  shown += other.shown;
  dropped += other.dropped;
  for (const std::string& trouble : other.troubles)
    if (std::ranges::find(troubles, trouble) == troubles.end()) troubles.push_back(trouble);
}

/// One observer, and what waits for it.
struct Observing::Seat {
  Watch watch;
  Place place;
  std::unique_ptr<Observer> observer;

  std::mutex mutex;
  std::condition_variable changed;  // Of what follows.
  std::deque<std::variant<std::shared_ptr<const Observed>, ObservedStep>> waiting;
  std::int64_t parts = 0;  // Of those that wait.
  bool ends = false;
  bool has_ended = false;
  std::string trouble;  // Why it was ended, until it is told.
  bool is_out = false;  // It was ended.
};

Observing::Observing(const std::vector<Watch>& watches, const std::string& job, std::int32_t node,
                     const std::filesystem::path& run) {
  const auto folders = folders_of(watches);
  for (std::size_t i = 0; i < watches.size(); ++i) {
    auto seat = std::make_shared<Seat>();
    seat->watch = watches[i];
    seat->place = {job, node, run / "observers" / folders[i], watches[i].options};
    seats_.push_back(seat);
    std::thread(serve, seat).detach();
  }
}

Observing::~Observing() { end(); }

bool Observing::wants(const Watch& watch, std::int64_t step, const std::string& module, Kind kind) {
  const bool kinds[] = {watch.rows, watch.gradients, watch.losses};
  return kinds[static_cast<std::size_t>(kind)] && step % watch.every_steps == 0 &&
         (watch.module.empty() || watch.module == module);
}

bool Observing::wants(std::int64_t step, const std::string& module, Kind kind) const {
  return std::ranges::any_of(
      seats_, [&](const auto& seat) { return wants(seat->watch, step, module, kind); });
}

void Observing::show(std::shared_ptr<const Observed> observed) {
  std::int64_t shown = 0, dropped = 0;
  for (const auto& seat : seats_) {
    if (!wants(seat->watch, observed->step, observed->module, observed->kind)) continue;
    const std::lock_guard lock(seat->mutex);
    if (seat->is_out || seat->ends || seat->parts >= seat->watch.queue) {
      ++dropped;
      continue;
    }
    ++shown;
    ++seat->parts;
    seat->waiting.emplace_back(observed);
    seat->changed.notify_all();
  }
  const std::lock_guard lock(mutex_);
  tally_.shown += shown;
  tally_.dropped += dropped;
}

void Observing::show(const ObservedStep& step) {
  for (const auto& seat : seats_) {
    const std::lock_guard lock(seat->mutex);
    if (seat->is_out || seat->ends) continue;
    // Of an observer that hangs the newest words are enough.
    if (std::ssize(seat->waiting) - seat->parts >= seat->watch.queue)
      std::erase_if(seat->waiting, [first = true](const auto& one) mutable {
        return std::holds_alternative<ObservedStep>(one) && std::exchange(first, false);
      });
    seat->waiting.emplace_back(step);
    seat->changed.notify_all();
  }
}

Tally Observing::take_tally() {
  std::vector<std::string> troubles;
  for (const auto& seat : seats_) {
    const std::lock_guard lock(seat->mutex);
    if (!seat->trouble.empty())
      troubles.push_back("observer '" + seat->watch.name + "' on node " +
                         std::to_string(seat->place.node) +
                         " sees nothing any more: " + std::exchange(seat->trouble, {}));
  }
  const std::lock_guard lock(mutex_);
  Tally tally = std::exchange(tally_, {});
  tally.troubles = std::move(troubles);
  return tally;
}

void Observing::end(std::chrono::milliseconds patience) {
  if (std::exchange(has_ended_, true)) return;
  const auto until = std::chrono::steady_clock::now() + patience;
  for (const auto& seat : seats_) {
    const std::lock_guard lock(seat->mutex);
    seat->ends = true;
    seat->changed.notify_all();
  }
  for (const auto& seat : seats_) {
    std::unique_lock lock(seat->mutex);
    seat->changed.wait_until(lock, until, [&] { return seat->has_ended; });
  }
}

/// Makes the observer and shows it what comes, until it is enough or one call has thrown.
void Observing::serve(const std::shared_ptr<Seat>& seat) {
  pthread_setname_np(pthread_self(), "observer");
  const ObserverKind* kind = find_observer(seat->watch.name);
  std::string trouble = kind == nullptr ? "nothing is called so" : thrown_by([&] {
    std::filesystem::create_directories(seat->place.folder);
    seat->observer = kind->make(seat->place);
  });
  if (trouble.empty() && seat->observer == nullptr) trouble = "its `make` gives none";
  std::unique_lock lock(seat->mutex);
  while (trouble.empty()) {
    seat->changed.wait(lock, [&] { return seat->ends || !seat->waiting.empty(); });
    if (seat->waiting.empty()) break;
    auto next = std::move(seat->waiting.front());
    seat->waiting.pop_front();
    lock.unlock();
    const auto* part = std::get_if<std::shared_ptr<const Observed>>(&next);
    trouble = thrown_by([&] {
      if (part != nullptr)
        seat->observer->see(**part);
      else
        seat->observer->see(std::get<ObservedStep>(next));
    });
    const bool is_part = part != nullptr;
    next = {};
    lock.lock();
    seat->parts -= is_part ? 1 : 0;
  }
  seat->is_out = !trouble.empty();
  seat->trouble = trouble;  // Told also where the observer cannot be let go of.
  seat->waiting.clear();
  lock.unlock();
  if (trouble.empty()) trouble = thrown_by([&] { seat->observer->end(); });
  const std::string last = thrown_by([&] { seat->observer.reset(); });
  lock.lock();
  if (!seat->is_out) seat->trouble = trouble.empty() ? last : trouble;
  seat->has_ended = true;
  seat->changed.notify_all();
}

}  // namespace troupe::observers
