// One communicator of NCCL that never makes anybody wait: opened, used, given up and let go of by
// the thread of its device, while a watchdog holds a deadline for each.
//
// Thread-safe. Every operation ends: with success, with what NCCL says, or by its deadline, which
// gives the whole communicator up, because NCCL cannot end one operation alone.
//
//   opening ──> ready
//      │          │ an error, a deadline, `end`
//      └──────────┴──> over: revoked if NCCL can ──abort──> let go of

#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/nccl/nccl_context.hpp"
#include "transport/nccl/nccl_stream.hpp"

namespace troupe::transport {

class NcclCommunicator : public std::enable_shared_from_this<NcclCommunicator> {
 public:
  /// Asks NCCL for a communicator without waiting; runs on the device's thread.
  using Opener = std::function<nccl::Code(nccl::Comm* made)>;
  /// Launches a part of an operation without waiting; NCCL has taken one in before the next begins.
  using Step = std::function<Status(nccl::Comm)>;

  struct Opening {
    Opener opener;
    /// What the opener derives it from (split, shrink): its state is NCCL's answer.
    std::shared_ptr<NcclCommunicator> parent = nullptr;
    bool splits = false;      ///< The parent goes on.
    bool makes_none = false;  ///< Of a split: this rank gets no communicator.
  };

  /// Starts to open one. `name` begins all its errors.
  static std::shared_ptr<NcclCommunicator> open(std::shared_ptr<NcclContext> context,
                                                std::shared_ptr<NcclStream> stream,
                                                std::string name, Opening opening,
                                                Deadline deadline);

  /// Ends when it is open. Errors: transport_failed, invalid_argument: NCCL's. timed_out: the
  /// deadline passed.
  Operation opened() const { return opening_.operation(); }

  /// Whether that deadline, or one of `launch`, passed while a call of NCCL's, which promises not
  /// to wait, had not returned: by then the device's thread had been in it for `NcclLimits::stuck`.
  bool is_stuck() const;

  /// Launches the steps one after the other, behind those of launches before; ends when the stream
  /// has done them. Meanwhile other communicators of the device launch theirs. `keep` is held
  /// until NCCL cannot touch its memory any more. `what` names the operation in errors.
  /// Errors: as `opened`, and what ended the communicator before.
  Operation launch(std::string what, std::vector<Step> steps, std::shared_ptr<const void> keep,
                   Deadline deadline);

  /// Gives it up: whatever is under way ends with `why`, and NCCL's work on the device is stopped.
  /// Only the first reason counts.
  void end(const Error& why);

  /// As `end`, and lets go of it. REQUIRES: nothing is derived from it any more.
  void abort(const Error& why);

  /// Waits until NCCL has let go of it. Errors: timed_out: see `NcclLimits::release`.
  Status await_release(Deadline deadline);

  /// Waits until nothing of one that is over runs any more, whether or not it is let go of. Errors:
  /// timed_out.
  Status await_quiet(Deadline deadline);

  /// NCCL's handle for a split or shrink; null when there is none (any more).
  nccl::Comm handle() const;
  /// Whether a smaller one may be derived from it: it was open once, and is well, or over and
  /// quiet.
  bool can_be_parent() const;

 private:
  struct Launch;
  /// A call of NCCL's with the handle, which nobody aborts meanwhile unless the call hangs.
  struct Use {
    explicit Use(NcclCommunicator& its);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    NcclCommunicator& of;
    nccl::Comm comm = nullptr;  ///< Null where somebody aborts it, or it is not there.
  };
  struct Running {
    std::string what;
    Completion completion;
    Deadline started;
    NcclTimer::Id watch = 0;
    std::shared_ptr<const void> keep;
  };

  NcclCommunicator(std::shared_ptr<NcclContext> context, std::shared_ptr<NcclStream> stream,
                   std::string name);

  // On the device's thread.
  /// Not while NCCL takes in what its parent launched: that one takes no other call then.
  bool may_open(const Opening& opening) const;
  void open_now(const Opening& opening);
  nccl::Code call(const Opening& opening);
  bool ask_opened(const Opening& opening);
  /// Whether NCCL may still write the handle of one that is over.
  bool may_be_made(const Opening& opening) const;
  void launch_now(const std::shared_ptr<Launch>& launch);
  /// Launches what NCCL may get now. Returns whether nothing of it is left to launch.
  bool go_on(Launch& launch);
  bool ask_done(std::uint64_t id, const std::string& what, std::uint64_t mark);
  Status await_taken_in(Deadline deadline);
  /// NCCL's word on it. Errors: what NCCL says; cancelled: nobody may ask any more.
  Status ask_state(bool& is_in_progress);
  void stop_now();
  bool revoke_now();
  void abort_now();

  // On any thread. Who claims the handle lets go of it, so that it happens once.
  void abort_apart();
  void end_opening(Deadline started);

  /// REQUIRES: the lock; a launch in line.
  void post_front();
  bool is_launching() const;
  void stop();
  void abort_after(Deadline time);
  bool is_over() const { return why().has_value(); }
  bool is_released() const;
  std::optional<Error> why() const;
  void settle();
  nccl::Comm unclaimed() const;  ///< REQUIRES: the lock.
  nccl::Comm claim();
  void let_go();
  void bite(std::uint64_t id);
  /// Gives it up over an error: of `what`, where that is not empty.
  void end_by(const std::string& what, Error error);
  void finish(std::uint64_t id);
  Error timed_out(const std::string& what, Deadline started) const;

  const std::shared_ptr<NcclContext> context_;
  const std::shared_ptr<NcclStream> stream_;
  const std::string name_;
  const Completion opening_ = Completion::pending();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  nccl::Comm made_ = nullptr;  ///< NCCL writes it: read by `handle` alone.
  bool is_called_ = false;     ///< The device's thread is in the call that opens it.
  bool is_stuck_ = false;      ///< It was in one of NCCL's when the time for that was over.
  bool is_settled_ = false;    ///< NCCL writes `made_` no more.
  bool is_ready_ = false;      ///< Was open once.
  bool is_claimed_ = false;    ///< Somebody aborts it.
  int uses_ = 0;               ///< Calls of NCCL's with it.
  bool is_quiet_ = false;      ///< Revoked, and nothing of it runs.
  bool is_released_ = false;
  bool is_abort_wanted_ = false;
  std::optional<Error> why_;  ///< Why it is over.
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, Running> running_;
  std::deque<std::shared_ptr<Launch>> line_;       ///< Launches that NCCL has not taken in whole.
  std::vector<std::shared_ptr<const void>> kept_;  ///< Of operations that NCCL may still run.
};

}  // namespace troupe::transport
