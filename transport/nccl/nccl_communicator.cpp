#include "transport/nccl/nccl_communicator.hpp"

#include <atomic>
#include <thread>
#include <utility>

namespace troupe::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kAskAgain{20};
constexpr std::chrono::milliseconds kSoonBack{100};

}  // namespace

NcclCommunicator::Use::Use(NcclCommunicator& its) : of(its) {
  const std::lock_guard lock(of.mutex_);
  comm = of.unclaimed();
  if (comm != nullptr) ++of.uses_;
}

NcclCommunicator::Use::~Use() {
  if (comm == nullptr) return;
  const std::lock_guard lock(of.mutex_);
  --of.uses_;
  of.changed_.notify_all();
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclContext> context,
                                   std::shared_ptr<NcclStream> stream, std::string name)
    : context_(std::move(context)), stream_(std::move(stream)), name_(std::move(name)) {}

std::shared_ptr<NcclCommunicator> NcclCommunicator::open(std::shared_ptr<NcclContext> context,
                                                         std::shared_ptr<NcclStream> stream,
                                                         std::string name, Opening opening,
                                                         Deadline deadline) {
  const std::shared_ptr<NcclCommunicator> self(
      new NcclCommunicator(std::move(context), std::move(stream), std::move(name)));
  const auto watch =
      self->context_->timer.at(deadline, [weak = std::weak_ptr(self), started = Clock::now()] {
        if (const auto waiting = weak.lock()) waiting->end_opening(started);
      });
  self->opened().on_done([weak = std::weak_ptr(self->context_), watch](const Status&) {
    if (const auto its_context = weak.lock()) its_context->timer.drop(watch);
  });
  self->context_->worker.post([self, opening = std::move(opening)] {
    if (self->may_open(opening)) return self->open_now(opening);
    self->context_->worker.poll([self, opening] {
      const bool opens = self->may_open(opening);
      if (opens) self->open_now(opening);
      return opens;
    });
  });
  return self;
}

void NcclCommunicator::end_opening(Deadline started) {
  if (opened().done()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stuck_ = is_called_;
  }
  end(timed_out(is_stuck() ? "the call that opens it" : "opening", started));
}

bool NcclCommunicator::may_open(const Opening& opening) const {
  return is_over() || !opening.parent || !opening.parent->is_launching();
}

bool NcclCommunicator::is_stuck() const {
  const std::lock_guard lock(mutex_);
  return is_stuck_;
}

nccl::Code NcclCommunicator::call(const Opening& opening) {
  const auto enter = [this](bool is_called) {
    const std::lock_guard lock(mutex_);
    is_called_ = is_called;
  };
  std::optional<Use> use;
  if (opening.parent) use.emplace(*opening.parent);
  enter(true);
  const auto code = opening.opener(&made_);
  enter(false);
  return code;
}

void NcclCommunicator::open_now(const Opening& opening) {
  auto status = is_over() ? Status(*why()) : stream_->make_current();
  // One that was given up meanwhile may be shrunk: NCCL must not be at it.
  if (opening.splits && opening.parent->is_over()) status = *opening.parent->why();
  // Whatever hangs here is found out by the deadline; a thread that was left behind and comes back
  // goes on below, and gives up at once.
  if (status) {
    const auto code = call(opening);
    if (code != nccl::Code::success && code != nccl::Code::in_progress) {
      status = context_->library->error("opening", code);
    }
  }
  if (!status) {
    settle();
    end_by("", status.error());
    return stop_now();  // Where it was over before.
  }
  context_->worker.poll([self = shared_from_this(), opening] { return self->ask_opened(opening); });
}

bool NcclCommunicator::may_be_made(const Opening& opening) const {
  if (!opening.parent || handle() != nullptr) return false;
  // While the parent is being aborted nobody may ask it, and its work may still come to an end.
  if (opening.parent->handle() == nullptr) return !opening.parent->is_released();
  bool is_in_progress = false;
  return opening.parent->ask_state(is_in_progress).ok() && is_in_progress;
}

bool NcclCommunicator::ask_opened(const Opening& opening) {
  if (is_over()) {
    if (may_be_made(opening)) return false;
    settle();
    stop_now();
    return true;
  }
  // The handle of a derived one appears when its parent's state says so.
  const auto asked = handle();
  const bool asks_parent = opening.parent && asked == nullptr;
  bool is_in_progress = false;
  const auto status = (asks_parent ? *opening.parent : *this).ask_state(is_in_progress);
  if (!status) {
    end_by("opening", status.error());
    return false;  // The next question finds it over.
  }
  // One that has just appeared is asked itself, the next time.
  const auto made = handle();
  if (is_in_progress || (made == nullptr ? !opening.makes_none : made != asked)) return false;
  settle();
  {
    const std::lock_guard lock(mutex_);
    if (why_) return false;
    is_ready_ = !opening.makes_none;
  }
  if (opening.makes_none) let_go();
  opening_.complete(Done{});
  return true;
}

void NcclCommunicator::settle() {
  const std::lock_guard lock(mutex_);
  is_settled_ = true;
}

Status NcclCommunicator::ask_state(bool& is_in_progress) {
  const Use use(*this);
  if (use.comm == nullptr) return Error{Errc::cancelled, "it was given up", "", ""};
  auto state = nccl::Code::success;
  auto code = context_->library->calls().comm_get_async_error(use.comm, &state);
  if (code == nccl::Code::success) code = state;
  is_in_progress = code == nccl::Code::in_progress;
  if (code == nccl::Code::success || is_in_progress) return Done{};
  return context_->library->error("it failed on its way", code);
}

Status NcclCommunicator::await_taken_in(Deadline deadline) {
  while (true) {
    bool is_in_progress = false;
    if (auto status = ask_state(is_in_progress); !status || !is_in_progress) return status;
    if (Clock::now() > deadline) {
      return Error{Errc::timed_out, "NCCL goes on with it for too long", "", ""};
    }
    std::this_thread::sleep_for(kAskAgain);
  }
}

Error NcclCommunicator::timed_out(const std::string& what, Deadline started) const {
  const auto time =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started).count();
  return {Errc::timed_out,
          name_ + ": " + what + " has not ended after " + std::to_string(time) + " ms", "",
          "see whether all ranks of the group still run; give NCCL more time if they do"};
}

void NcclCommunicator::bite(std::uint64_t id) {
  std::optional<Error> why;
  const bool is_stuck = context_->worker.is_stuck();
  {
    const std::lock_guard lock(mutex_);
    const auto found = running_.find(id);
    if (found == running_.end()) return;
    is_stuck_ = is_stuck;
    why = timed_out(found->second.what, found->second.started);
  }
  end(*why);
}

void NcclCommunicator::end_by(const std::string& what, Error error) {
  error.message = name_ + ": " + (what.empty() ? "" : what + ": ") + error.message;
  end(error);
}

void NcclCommunicator::end(const Error& why) {
  std::map<std::uint64_t, Running> ended;
  std::deque<std::shared_ptr<Launch>> dropped;  // What they hold may end here, unlocked.
  {
    const std::lock_guard lock(mutex_);
    if (why_) return;
    why_ = why;
    dropped.swap(line_);
    ended.swap(running_);
    for (auto& [id, running] : ended) kept_.push_back(std::move(running.keep));
  }
  for (const auto& [id, running] : ended) {
    context_->timer.drop(running.watch);
    running.completion.complete(why);
  }
  opening_.complete(why);
  stop();
}

void NcclCommunicator::abort(const Error& why) {
  {
    const std::lock_guard lock(mutex_);
    is_abort_wanted_ = true;
    if (is_released_) return;
  }
  if (!is_over()) return end(why);
  stop();
}

void NcclCommunicator::stop() {
  context_->worker.post_first([self = shared_from_this()] { self->stop_now(); });
  // The device's thread may hang in a call: then another one does it, which is what NCCL's abort is
  // made for.
  replace_when_stuck(context_);
  abort_after(Clock::now() + context_->limits.release / 2);
}

void NcclCommunicator::abort_after(Deadline time) {
  context_->timer.at(time, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    {
      const std::lock_guard lock(self->mutex_);
      if (self->is_released_ || (self->is_quiet_ && !self->is_abort_wanted_)) return;
    }
    std::thread([self] { self->abort_apart(); }).detach();
  });
}

void NcclCommunicator::stop_now() {
  const auto comm = handle();
  bool is_revocable = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_released_ || is_claimed_) return;
    // Whoever opens it comes back here when NCCL has answered.
    if (comm == nullptr && !is_settled_) return;
    is_revocable = is_ready_ && !is_abort_wanted_ && context_->library->can_revoke();
    if (is_quiet_ && !is_abort_wanted_) return;
  }
  if (comm == nullptr) return let_go();
  if (!is_revocable || !revoke_now()) abort_now();
}

bool NcclCommunicator::revoke_now() {
  {
    const Use use(*this);
    if (use.comm == nullptr) return false;
    const auto code = context_->library->calls().comm_revoke(use.comm, nccl::kRevokeDefault);
    if (code != nccl::Code::success && code != nccl::Code::in_progress) return false;
  }
  if (!await_taken_in(Clock::now() + context_->limits.release / 4)) return false;
  std::vector<std::shared_ptr<const void>> kept;
  const std::lock_guard lock(mutex_);
  is_quiet_ = true;
  kept.swap(kept_);
  changed_.notify_all();
  return true;
}

void NcclCommunicator::abort_now() {
  const auto comm = claim();
  if (comm == nullptr) return;
  context_->library->calls().comm_abort(comm);
  let_go();
}

void NcclCommunicator::abort_apart() {
  const auto comm = claim();
  if (comm == nullptr) return;
  {
    // Who is in a call of NCCL's with it is soon back, or hangs, which aborting it ends.
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kSoonBack, [this] { return uses_ == 0; });
  }
  context_->library->calls().comm_abort(comm);
  let_go();
}

Status NcclCommunicator::await_quiet(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_until(lock, deadline, [this] { return is_released_ || is_quiet_; })) {
    return Done{};
  }
  return Error{Errc::timed_out, name_ + ": NCCL does not stop", "", ""};
}

Status NcclCommunicator::await_release(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_until(lock, deadline, [this] { return is_released_; })) return Done{};
  return Error{Errc::timed_out, name_ + ": NCCL does not let go of it", "",
               "end this process: nothing else frees what NCCL holds of the device"};
}

void NcclCommunicator::let_go() {
  std::vector<std::shared_ptr<const void>> kept;
  const std::lock_guard lock(mutex_);
  is_released_ = true;
  kept.swap(kept_);
  changed_.notify_all();
}

std::optional<Error> NcclCommunicator::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

bool NcclCommunicator::is_released() const {
  const std::lock_guard lock(mutex_);
  return is_released_;
}

nccl::Comm NcclCommunicator::handle() const {
  const std::lock_guard lock(mutex_);
  return unclaimed();
}

nccl::Comm NcclCommunicator::unclaimed() const {
  if (is_claimed_) return nullptr;
  return std::atomic_ref(const_cast<nccl::Comm&>(made_))
      .load();  // NCCL writes it without our lock.
}

nccl::Comm NcclCommunicator::claim() {
  const auto comm = handle();
  const std::lock_guard lock(mutex_);
  if (is_claimed_ || comm == nullptr) return nullptr;
  is_claimed_ = true;
  return comm;
}

bool NcclCommunicator::can_be_parent() const {
  const std::lock_guard lock(mutex_);
  // A call that was slow to split it may come back after all.
  return is_ready_ && !is_claimed_ && !is_abort_wanted_ && uses_ == 0 && (!why_ || is_quiet_);
}

}  // namespace troupe::transport
