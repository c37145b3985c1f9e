// What a communicator does with an operation, from its launch to its end.
//
// NCCL takes an operation in on a thread of its own. That is soon done, but where it is the first
// between two ranks: then they connect, and it waits for the peer to call too. The device's thread
// does not: the peer may need something of another communicator of this device before it can.

#include <thread>
#include <utility>

#include "transport/nccl/nccl_communicator.hpp"

namespace troupe::transport {
namespace {

using Clock = std::chrono::steady_clock;

// How long the device's thread stays with a launch until NCCL has taken it in.
constexpr std::chrono::microseconds kTakenInSoon{200}, kAskAgain{20};

}  // namespace

struct NcclCommunicator::Launch {
  std::uint64_t id = 0;
  std::string what;
  std::vector<Step> steps;
  std::size_t begun = 0;  ///< Steps that NCCL has got.
};

Operation NcclCommunicator::launch(std::string what, std::vector<Step> steps,
                                   std::shared_ptr<const void> keep, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  if (why_) return Operation(*why_);
  const auto id = next_++;
  Running running{what, Completion::pending(), Clock::now(), 0, std::move(keep)};
  running.watch = context_->timer.at(deadline, [weak = weak_from_this(), id] {
    if (const auto self = weak.lock()) self->bite(id);
  });
  const auto operation = running.completion.operation();
  running_.emplace(id, std::move(running));
  line_.push_back(std::make_shared<Launch>(Launch{id, std::move(what), std::move(steps)}));
  if (line_.size() == 1) post_front();
  return operation;
}

void NcclCommunicator::post_front() {
  context_->worker.post(
      [self = shared_from_this(), launch = line_.front()] { self->launch_now(launch); });
}

bool NcclCommunicator::is_launching() const {
  const std::lock_guard lock(mutex_);
  return !line_.empty();
}

void NcclCommunicator::launch_now(const std::shared_ptr<Launch>& launch) {
  const auto soon = Clock::now() + kTakenInSoon;
  while (!go_on(*launch)) {
    if (Clock::now() > soon) {
      return context_->worker.poll(
          [self = shared_from_this(), launch] { return self->go_on(*launch); });
    }
    std::this_thread::sleep_for(kAskAgain);
  }
}

bool NcclCommunicator::go_on(Launch& launch) {
  Status status = Done{};
  while (status) {
    if (is_over()) return true;
    bool is_in_progress = false;
    // Until NCCL has taken a step in neither a mark nor another call may follow.
    if (launch.begun > 0) status = ask_state(is_in_progress);
    if (status && is_in_progress) return false;
    if (!status || launch.begun == launch.steps.size()) break;
    status = stream_->make_current();
    const Use use(*this);
    if (use.comm == nullptr) return true;
    if (status) status = launch.steps[launch.begun++](use.comm);
  }
  if (is_over()) return true;
  const auto mark = status ? stream_->mark() : Result<std::uint64_t>(status.error());
  if (!mark) {
    end_by(launch.what, mark.error());
    return true;
  }
  context_->worker.poll([self = shared_from_this(), id = launch.id, what = launch.what,
                         at = mark.value()] { return self->ask_done(id, what, at); });
  const std::lock_guard lock(mutex_);
  if (why_) return true;
  line_.pop_front();
  if (!line_.empty()) post_front();
  return true;
}

bool NcclCommunicator::ask_done(std::uint64_t id, const std::string& what, std::uint64_t mark) {
  if (is_over()) return true;
  bool is_in_progress = false;
  // The state first: a stream comes to its end also when NCCL gave the operation up.
  auto status = ask_state(is_in_progress);
  const auto reached = status ? stream_->reached(mark) : Result<bool>(status.error());
  if (!reached) {
    end_by(what, reached.error());
    return true;
  }
  // Of one that is behind its mark NCCL goes on with nothing: it takes in a later one.
  if (!reached.value() || (is_in_progress && !is_launching())) return false;
  finish(id);
  return true;
}

void NcclCommunicator::finish(std::uint64_t id) {
  std::unique_lock lock(mutex_);
  const auto found = running_.extract(id);
  lock.unlock();
  if (!found) return;
  context_->timer.drop(found.mapped().watch);
  found.mapped().completion.complete(Done{});
}

}  // namespace troupe::transport
