// Round trips between actors: in one process and between two, on threads of their own (detached)
// and on the scheduler's.
//
// Bounds, measured in the same run: two threads handing over by a condition variable, and two
// threads over a loopback socket. Between two processes it is measured twice, side by side: over
// plain TCP, and as a job does, behind the door (TLS 1.3 with a key). `actor_bench --serve KIND
// WAY` is the second process.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <future>
#include <mutex>
#include <thread>

#include "actors/tls_doorman.hpp"
#include "actors/tls_scribe.hpp"
#include "tests/bench/report.hpp"

extern char** environ;

namespace {

using Clock = std::chrono::steady_clock;
using Count = std::uint64_t;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// What the engine's control plane uses: dependencies of CAF's default scheduler on idle polling
// cost 250 us per remote round trip, these settings 90 us.
struct Config : caf::actor_system_config {
  explicit Config(bool remote) {
    load<caf::io::middleman>();
    set("scheduler.max-threads", 2);
    if (!remote) return;
    set("scheduler.policy", caf::atom("sharing"));
    set("middleman.workers", 0);
  }
};

caf::behavior pong(caf::event_based_actor*) {
  return {[](caf::ping_atom, Count number) { return number; }};
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

// A system that lives until the program ends. The destructor of CAF 0.17 sometimes waits for ever
// for the thread of a detached actor that exchanged messages with another process.
caf::actor_system& immortal_system(bool remote) {
  return *new caf::actor_system(*new Config(remote));
}

void measure_local(bool detached, double bound_us) {
  auto& system = immortal_system(/*remote=*/false);
  const auto target = detached ? system.spawn<caf::detached>(pong) : system.spawn(pong);
  measure("in one process", system, target, 2'000, detached, bound_us);
  caf::anon_send_exit(target, caf::exit_reason::user_shutdown);
}

namespace door = troupe::door;

// Both processes know it; what it is does not matter here.
door::JobKey bench_key() { return door::JobKey::parse(std::string(64, '7'), "").value(); }

caf::io::network::default_multiplexer& multiplexer_of(caf::actor_system& system) {
  return dynamic_cast<caf::io::network::default_multiplexer&>(system.middleman().backend());
}

caf::actor broker_of(caf::actor_system& system) {
  return system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
}

std::uint16_t publish(caf::actor_system& system, const caf::actor& target, bool behind_door) {
  if (!behind_door) return *system.middleman().publish(target, 0, "127.0.0.1");
  caf::io::doorman_ptr doorman = caf::make_counted<troupe::actors::TlsDoorman>(
      multiplexer_of(system), door::listen_at({"127.0.0.1", 0}).value(), bench_key(),
      [](const std::string&) {});
  const auto port = doorman->port();
  caf::anon_send(broker_of(system), caf::publish_atom::value, std::move(doorman), port,
                 caf::actor_cast<caf::strong_actor_ptr>(target), std::set<std::string>());
  return port;
}

caf::actor connect(caf::actor_system& system, std::uint16_t port, bool behind_door) {
  if (!behind_door) return *system.middleman().remote_actor("127.0.0.1", port);
  const troupe::HostPort address{"127.0.0.1", port};
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  const door::TlsContext context(bench_key(), door::TlsContext::Side::client);
  auto session =
      door::shake_hands(context, door::connect_to(address, deadline).value(), address, deadline);
  caf::io::scribe_ptr scribe = caf::make_counted<troupe::actors::TlsScribe>(
      multiplexer_of(system), std::move(session).value());
  caf::scoped_actor self(system);
  caf::actor found;
  self->request(broker_of(system), std::chrono::seconds(20), caf::connect_atom::value,
                std::move(scribe), port)
      .receive([&](caf::node_id&, caf::strong_actor_ptr& actor,
                   std::set<std::string>&) { found = caf::actor_cast<caf::actor>(actor); },
               [](const caf::error&) { throw std::runtime_error("cannot connect"); });
  return found;
}

// The second process: publishes a pong, says on which port, ends with its standard input.
int serve(bool detached, bool behind_door) {
  auto& system = immortal_system(/*remote=*/true);
  const auto target = detached ? system.spawn<caf::detached>(pong) : system.spawn(pong);
  std::cout << publish(system, target, behind_door) << std::endl;
  std::string ignored;
  std::getline(std::cin, ignored);
  return 0;
}

// Runs `actor_bench --serve KIND WAY` and knows its port.
class Server {
 public:
  Server(bool detached, bool behind_door) {
    std::array<int, 2> in{}, out{};
    if (::pipe(in.data()) != 0 || ::pipe(out.data()) != 0) throw std::runtime_error("no pipe");
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    for (const int end : {in[1], out[0]}) ::posix_spawn_file_actions_addclose(&actions, end);
    char name[] = "actor_bench", serve[] = "--serve", first[] = "detached", second[] = "scheduled";
    char plain[] = "plain", door[] = "door";
    std::array<char*, 5> arguments{name, serve, detached ? first : second,
                                   behind_door ? door : plain, nullptr};
    if (::posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ) !=
        0)
      throw std::runtime_error("no second process");
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    input_ = in[1];
    std::string text;
    for (char letter = 0; ::read(out[0], &letter, 1) == 1 && letter != '\n';) text += letter;
    ::close(out[0]);
    port_ = static_cast<std::uint16_t>(std::stoi(text));
  }
  ~Server() {
    ::close(input_);
    ::waitpid(process_, nullptr, 0);
  }
  std::uint16_t port() const { return port_; }

 private:
  pid_t process_ = -1;
  int input_ = -1;
  std::uint16_t port_ = 0;
};

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
    std::signal(SIGPIPE, SIG_IGN);
    if (count == 4 && std::strcmp(arguments[1], "--serve") == 0)
      code =
          serve(std::strcmp(arguments[2], "detached") == 0, std::strcmp(arguments[3], "door") == 0);
    else
      measure_all();
  } catch (const std::exception& error) {
    std::cerr << "actor_bench: " << error.what() << '\n';
    code = 1;
  }
  std::cout.flush();
  // Not by return: threads of the systems above still run.
  std::_Exit(code);
}
