// Round trips between actors: in one process and between two, on threads of their own (detached)
// and on the scheduler's.
//
// Bounds, measured in the same run: two threads handing over by a condition variable, and two
// threads over a loopback socket. Between two processes it is measured twice, side by side: over
// plain TCP, and as a job does, behind the door (TLS 1.3 with a key): see second_process.hpp.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <caf/all.hpp>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>

#include "tests/bench/report.hpp"
#include "tests/bench/second_process.hpp"

namespace {

using troupe::bench::connect;
using troupe::bench::immortal_system;
using troupe::bench::pong;
using troupe::bench::Server;
using Clock = std::chrono::steady_clock;
using Count = std::uint64_t;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Keeps `window` requests in flight until `count` were answered, then fulfils `finished`.
struct Ping {
  caf::actor target;
  Count to_send = 0;
  Count to_receive = 0;
  std::shared_ptr<std::promise<void>> finished;
};

void send_next(caf::stateful_actor<Ping>* self) {
  if (self->state.to_send == 0) return;
  const auto number = --self->state.to_send;
  // No timeout per request: CAF's clock keeps the actor alive for those it has not yet cancelled
  // when the system ends, which then waits for the actor's thread for ever.
  self->request(self->state.target, caf::infinite, caf::ping_atom::value, number)
      .then(
          [self](Count) {
            if (--self->state.to_receive == 0)
              self->state.finished->set_value();
            else
              send_next(self);
          },
          [self](const caf::error&) {
            self->state.finished->set_exception(
                std::make_exception_ptr(std::runtime_error("no answer")));
            self->quit();
          });
}

caf::behavior ping(caf::stateful_actor<Ping>* self, caf::actor target, Count count, Count window,
                   std::shared_ptr<std::promise<void>> finished) {
  self->state = {std::move(target), count, count, std::move(finished)};
  for (Count i = 0; i < window; ++i) send_next(self);
  return {[](caf::ok_atom) {}};
}

// Seconds for `count` round trips.
double run_ping(caf::actor_system& system, const caf::actor& target, Count count, Count window,
                bool detached) {
  auto finished = std::make_shared<std::promise<void>>();
  auto future = finished->get_future();
  const auto begin = Clock::now();
  const auto actor = detached ? system.spawn<caf::detached>(ping, target, count, window, finished)
                              : system.spawn(ping, target, count, window, finished);
  if (future.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
    std::cerr << "actor_bench: no answer for a minute\n";
    std::_Exit(1);
  }
  future.get();
  const double seconds = seconds_since(begin);
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  return seconds;
}

double median_of_runs(const std::function<double()>& run) {
  run();
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) seconds.push_back(run());
  return troupe::bench::median(seconds);
}

// One in flight is a latency, 64 are a rate.
void measure(const std::string& where, caf::actor_system& system, const caf::actor& target,
             Count count, bool detached, double bound_us) {
  const std::string name = "actors " + where + (detached ? ", detached" : ", scheduled");
  const double one = median_of_runs([&] { return run_ping(system, target, count, 1, detached); });
  nlohmann::json extra{{"better", "lower"}, {"size", "1 in flight"}};
  if (bound_us > 0) extra["bound"] = bound_us;
  troupe::bench::report(name, 1e6 * one / static_cast<double>(count), "us/round trip", extra);
  const double many =
      median_of_runs([&] { return run_ping(system, target, 8 * count, 64, detached); });
  troupe::bench::report(name, static_cast<double>(8 * count) / many, "round trips/s",
                        {{"size", "64 in flight"}});
}

void measure_local(bool detached, double bound_us) {
  auto& system = immortal_system(/*remote=*/false);
  const auto target = detached ? system.spawn<caf::detached>(pong) : system.spawn(pong);
  measure("in one process", system, target, 2'000, detached, bound_us);
  caf::anon_send_exit(target, caf::exit_reason::user_shutdown);
}

void measure_remote(bool detached, double bound_us, bool behind_door) {
  const Server server(detached, behind_door);
  auto& system = immortal_system(/*remote=*/true);
  const auto target = connect(system, server.port(), behind_door);
  measure(behind_door ? "between two processes, behind the door" : "between two processes", system,
          target, 500, detached, bound_us);
}

// Two threads, a flag and a condition variable: what any hand-over between threads costs here.
double hand_over_us() {
  constexpr int kCount = 5'000;
  return 1e6 / kCount * median_of_runs([] {
           std::mutex mutex;
           std::condition_variable changed;
           bool turn = false;
           const auto play = [&](bool mine) {
             for (int i = 0; i < kCount; ++i) {
               std::unique_lock lock(mutex);
               changed.wait(lock, [&] { return turn == mine; });
               turn = !mine;
               changed.notify_one();
             }
           };
           const auto begin = Clock::now();
           std::thread other(play, true);
           play(false);
           other.join();
           return seconds_since(begin);
         });
}

// A connected pair over the loopback device, without delays.
std::array<int, 2> loopback_pair() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(listener, plain, size) != 0 || ::listen(listener, 1) != 0 ||
      ::getsockname(listener, plain, &size) != 0 || ::connect(client, plain, size) != 0)
    throw std::runtime_error("no loopback connection");
  const int server = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  ::close(listener);
  const int on = 1;
  for (const int end : {client, server})
    ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return {client, server};
}

double socket_us() {
  constexpr int kCount = 2'000;
  return 1e6 / kCount * median_of_runs([] {
           const auto ends = loopback_pair();
           std::array<char, 64> bytes{};
           const auto move = [&](int end, bool first) {
             std::array<char, 64> own{};
             for (int i = 0; i < kCount; ++i) {
               if (first && ::send(end, bytes.data(), bytes.size(), 0) < 0) return;
               if (::recv(end, own.data(), own.size(), MSG_WAITALL) <= 0) return;
               if (!first && ::send(end, own.data(), own.size(), 0) < 0) return;
             }
           };
           const auto begin = Clock::now();
           std::thread other(move, ends[1], false);
           move(ends[0], true);
           other.join();
           const double seconds = seconds_since(begin);
           for (const int end : ends) ::close(end);
           return seconds;
         });
}

void measure_all() {
  const double hand_over = hand_over_us();
  const double socket = socket_us();
  measure_local(/*detached=*/true, hand_over);
  // Scheduled actors may share a thread, so a hand-over between threads is no bound for them.
  measure_local(/*detached=*/false, 0);
  for (const bool detached : {true, false})
    for (const bool behind_door : {false, true}) measure_remote(detached, socket, behind_door);
}

}  // namespace

int main(int count, char** arguments) {
  int code = 0;
  try {
    troupe::bench::serve_if_asked(count, arguments);
    measure_all();
  } catch (const std::exception& error) {
    std::cerr << "actor_bench: " << error.what() << '\n';
    code = 1;
  }
  std::cout.flush();
  // Not by return: threads of the systems above still run.
  std::_Exit(code);
}
