#include "tests/bench/second_process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "actors/link/tls_doorman.hpp"
#include "actors/link/tls_scribe.hpp"

extern char** environ;

namespace troupe::bench {

namespace {

using Clock = std::chrono::steady_clock;

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
  caf::io::doorman_ptr doorman = caf::make_counted<actors::TlsDoorman>(
      multiplexer_of(system), door::listen_at({"127.0.0.1", 0}).value(), bench_key(),
      [](const std::string&) {});
  const auto port = doorman->port();
  caf::anon_send(broker_of(system), caf::publish_atom::value, std::move(doorman), port,
                 caf::actor_cast<caf::strong_actor_ptr>(target), std::set<std::string>());
  return port;
}

}  // namespace

caf::behavior pong(caf::event_based_actor*) {
  return {[](caf::ping_atom, std::uint64_t number) { return number; },
          [](caf::ping_atom, const std::string& text) -> std::uint64_t { return text.size(); }};
}

caf::actor_system& immortal_system(bool remote) {
  return *new caf::actor_system(*new Config(remote));
}

caf::actor connect(caf::actor_system& system, std::uint16_t port, bool behind_door) {
  if (!behind_door) return *system.middleman().remote_actor("127.0.0.1", port);
  const HostPort address{"127.0.0.1", port};
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  const door::TlsContext context(bench_key(), door::TlsContext::Side::client);
  auto session =
      door::shake_hands(context, door::connect_to(address, deadline).value(), address, deadline);
  caf::io::scribe_ptr scribe =
      caf::make_counted<actors::TlsScribe>(multiplexer_of(system), std::move(session).value());
  caf::scoped_actor self(system);
  caf::actor found;
  self->request(broker_of(system), std::chrono::seconds(20), caf::connect_atom::value,
                std::move(scribe), port)
      .receive([&](caf::node_id&, caf::strong_actor_ptr& actor,
                   std::set<std::string>&) { found = caf::actor_cast<caf::actor>(actor); },
               [](const caf::error&) { throw std::runtime_error("cannot connect"); });
  return found;
}

int serve(bool detached, bool behind_door) {
  auto& system = immortal_system(/*remote=*/true);
  const auto target = detached ? system.spawn<caf::detached>(pong) : system.spawn(pong);
  std::cout << publish(system, target, behind_door) << std::endl;
  std::string ignored;
  std::getline(std::cin, ignored);
  return 0;
}

void serve_if_asked(int count, char** arguments) {
  std::signal(SIGPIPE, SIG_IGN);
  if (count != 4 || std::strcmp(arguments[1], "--serve") != 0) return;
  const int code =
      serve(std::strcmp(arguments[2], "detached") == 0, std::strcmp(arguments[3], "door") == 0);
  std::_Exit(code);  // Not by return: threads of its system still run.
}

Server::Server(bool detached, bool behind_door) {
  std::array<int, 2> in{}, out{};
  // A server that comes later must not keep this one's input open.
  if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0)
    throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  char name[] = "bench", serve[] = "--serve", first[] = "detached", second[] = "scheduled";
  char plain[] = "plain", door[] = "door";
  std::array<char*, 5> arguments{name, serve, detached ? first : second, behind_door ? door : plain,
                                 nullptr};
  if (::posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ) != 0)
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

Server::~Server() {
  ::close(input_);
  ::waitpid(process_, nullptr, 0);
}

}  // namespace troupe::bench
