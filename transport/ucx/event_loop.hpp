// The one thread of a UCX transport: runs commands and progress, sleeps when there is neither.
//
// Boost.Asio waits on the event descriptors of the client's workers. `post` and `is_own_thread` may
// be called from any thread; everything the client does happens on the loop's thread.

#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace troupe::transport {

class EventLoop {
 public:
  /// What the loop drives. All calls come from its thread.
  class Client {
   public:
    virtual ~Client() = default;
    /// Advances without blocking; true when anything moved.
    virtual bool progress() = 0;
    /// Whether more is to be expected within microseconds: a message is under way.
    virtual bool expects_more() const = 0;
    /// Prepares the descriptors; false when events wait already.
    virtual bool arm() = 0;
    /// Called once a second, and a tenth of a second after `tick_soon`, for deadlines. True: again
    /// in a tenth of a second.
    virtual bool tick() = 0;
  };

  /// The client must outlive `stop`. `spin`: how long to poll after the last progress while the
  /// client expects more.
  EventLoop(Client& client, int event_fd, std::chrono::microseconds spin);
  ~EventLoop();  ///< REQUIRES: `stop` was called.

  /// Runs `command` soon on the loop's thread, in the order of the calls. False, and nothing
  /// happens, once the loop is stopping.
  bool post(std::function<void()> command);

  bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

  /// Wakes for another descriptor of the client, until `remove_events`. Does not take it. From the
  /// loop's thread only.
  void add_events(int fd);
  void remove_events(int fd);

  /// Lets the client's next `tick` come in a tenth of a second. From the loop's thread only.
  void tick_soon();

  /// Calls `on_readable` once on the loop's thread when `fd` becomes readable, unless `unwatch`
  /// comes first. Takes the descriptor and closes it then. From the loop's thread only.
  void watch(int fd, std::function<void()> on_readable);
  void unwatch(int fd);

  /// Runs the commands posted so far and then `last`, and ends the thread. Call it once, not from
  /// the loop's thread.
  void stop(std::function<void()> last);

 private:
  struct Io;  // Keeps Asio, the heaviest header here, out of the clients.

  void drive();
  bool run_commands();
  bool try_to_sleep();
  void wait_for_events();
  void schedule_tick();
  void drive_later();
  void rest();
  bool spins() const;

  Client& client_;
  const std::chrono::microseconds spin_;
  std::chrono::steady_clock::time_point last_moved_;
  std::chrono::microseconds rest_;  ///< The next one, without `progress` since the last.

  std::mutex mutex_;
  std::vector<std::function<void()>> commands_;  // Guarded by mutex_.
  bool closed_ = false;                          // Guarded by mutex_.
  std::vector<std::function<void()>> running_;   // The loop's own; keeps its capacity.
  bool ticks_soon_ = false;                      // The loop's own.
  /// False while the loop sleeps: whoever turns it to true wakes the loop.
  std::atomic<bool> awake_{true};
  std::atomic<bool> has_commands_{false};
  bool stopped_ = false;

  std::unique_ptr<Io> io_;
  std::thread thread_;  // Declared last: starts when everything else is there.
};

}  // namespace troupe::transport
