// Bandwidth and one-way latency of the UCX transport between two processes, over shared memory and
// TCP, beside ucx_perftest with the same transports in the same run.
//
//   transport_bench [--spin MICROSECONDS] [--rounds N]
//
// Prints JSON lines as README.md says; `bound` is what ucx_perftest
// reaches. Ours and ucx_perftest take turns, `rounds` times; medians are printed, because a shared
// machine is too noisy for anything else. ucx_perftest polls without end; our thread sleeps when
// nothing happens for `spin` microseconds.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/registry.hpp"

using namespace troupe;
using namespace troupe::transport;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kSizes[] = {64u << 10, 1u << 20, 16u << 20};
constexpr std::uint64_t kWindow = 8;
constexpr const char* kShared = "posix,sysv,self,tcp";
constexpr const char* kTcp = "self,tcp";
constexpr auto kLong = std::chrono::minutes(2);

struct Settings {
  int spin_us = static_cast<int>(UcxOptions{}.spin.count());
  int rounds = 3;
};

std::uint64_t messages_of(std::size_t bytes, bool latency) {
  const std::uint64_t all = std::clamp<std::uint64_t>((std::uint64_t{1} << 30) / bytes, 40, 4000);
  return latency ? std::max<std::uint64_t>(all / 4, 30) : all;
}

[[noreturn]] void fail(const std::string& what) {
  std::cerr << "transport_bench: " << what << "\n";
  std::exit(1);
}

void require(const Status& status) {
  if (!status.ok()) fail(to_string(status.error()));
}

/// One end of the measured connection. Everything is driven from completion callbacks, as the
/// engine's executors are by messages, so that no thread but the transport's takes part.
class End {
 public:
  End(std::unique_ptr<Transport> transport, Peer other)
      : transport_(std::move(transport)), other_(other), memory_(kSizes[2]) {
    std::memset(memory_.data(), 1, memory_.size());
  }

  std::vector<std::byte> address() const { return transport_->address(); }
  void connect(std::span<const std::byte> address) {
    require(transport_->connect(other_, address));
  }

  /// Sends so many messages, `kWindow` at a time, and waits for the last word of the other end.
  void stream(std::uint64_t run, std::size_t bytes, std::uint64_t count) {
    each(count, [&, run, bytes](std::uint64_t i) { return send(run, i, bytes); });
    require(receive(run, count, 0).wait(within(kLong)));
  }
  void sink(std::uint64_t run, std::size_t bytes, std::uint64_t count) {
    each(count, [&, run, bytes](std::uint64_t i) { return receive(run, i, bytes); });
    require(send(run, count, 0).wait(within(kLong)));
  }

  /// Ping-pong; the end that `serves` waits for the first message.
  void ping_pong(std::uint64_t run, std::size_t bytes, std::uint64_t count, bool serves) {
    std::promise<void> done;
    std::function<void(std::uint64_t)> turn = [&](std::uint64_t i) {
      if (i == count) return done.set_value();
      const auto first = serves ? receive(run, 2 * i, bytes) : receive(run, 2 * i + 1, bytes);
      if (!serves) send(run, 2 * i, bytes);
      first.on_done([&, i](const Status& status) {
        require(status);
        if (serves) send(run, 2 * i + 1, bytes);
        turn(i + 1);
      });
    };
    turn(0);
    done.get_future().wait();
  }

 private:
  Operation send(std::uint64_t run, std::uint64_t index, std::size_t bytes) {
    return transport_->send(other_, make_tag(1, TagKind::user, run, index),
                            {memory_.data(), bytes});
  }
  Operation receive(std::uint64_t run, std::uint64_t index, std::size_t bytes) {
    return transport_->receive(other_, make_tag(1, TagKind::user, run, index),
                               {memory_.data(), bytes});
  }

  /// Keeps `kWindow` of `count` operations under way until all are done.
  void each(std::uint64_t count, const std::function<Operation(std::uint64_t)>& start) {
    struct State {
      std::atomic<std::uint64_t> next{0}, finished{0};
      std::promise<void> done;
    } state;
    std::function<void()> go = [&] {
      const auto i = state.next++;
      if (i >= count) return;
      start(i).on_done([&](const Status& status) {
        require(status);
        go();
        if (++state.finished == count) state.done.set_value();
      });
    };
    for (std::uint64_t slot = 0; slot < kWindow; ++slot) go();
    state.done.get_future().wait();
  }

  std::unique_ptr<Transport> transport_;
  const Peer other_;
  std::vector<std::byte> memory_;  // One buffer for all messages, as ucx_perftest has.
};

std::unique_ptr<End> make_end(Peer self, const std::string& tls, int spin_us) {
  TransportOptions options;
  options.self = self;
  options.ucx.tls = tls;
  options.ucx.net_devices = "lo";
  options.ucx.spin = std::chrono::microseconds(spin_us);
  auto transport = create_transport("ucx", options);
  if (!transport) fail(to_string(transport.error()));
  return std::make_unique<End>(std::move(transport).value(), 1 - self);
}

void write_block(int pipe, const std::vector<std::byte>& bytes) {
  const auto size = bytes.size();
  if (write(pipe, &size, sizeof size) < 0 || write(pipe, bytes.data(), size) < 0) fail("pipe");
}
std::vector<std::byte> read_block(int pipe) {
  std::size_t size = 0;
  if (read(pipe, &size, sizeof size) != sizeof size) fail("the other process ended");
  std::vector<std::byte> bytes(size);
  if (read(pipe, bytes.data(), size) != static_cast<ssize_t>(size)) fail("the other process ended");
  return bytes;
}

/// What a run asks of the other process.
struct Order {
  std::uint64_t run, bytes, count;
  bool latency;
};

/// The other process: transport_bench --serve TLS SPIN, orders on standard input.
int serve(const std::string& tls, int spin_us) {
  auto end = make_end(1, tls, spin_us);
  write_block(STDOUT_FILENO, end->address());
  end->connect(read_block(STDIN_FILENO));
  for (Order order; read(STDIN_FILENO, &order, sizeof order) == sizeof order;) {
    if (order.latency) {
      end->ping_pong(order.run, order.bytes, order.count, true);
    } else {
      end->sink(order.run, order.bytes, order.count);
    }
  }
  return 0;
}

/// Our side of the measurement, with the other process at the end of two pipes.
class Pair {
 public:
  Pair(const std::string& tls, int spin_us) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) fail("pipe");
    const auto spin = std::to_string(spin_us);
    child_ = fork();
    if (child_ == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      execl("/proc/self/exe", "transport_bench", "--serve", tls.c_str(), spin.c_str(), nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
    end_ = make_end(0, tls, spin_us);
    end_->connect(read_block(from_));
    write_block(to_, end_->address());
    measure(64, 50, true);  // Wires the connection up.
  }
  ~Pair() {
    end_.reset();
    close(to_);
    close(from_);
    waitpid(child_, nullptr, 0);
  }

  /// Microseconds one way, or gigabytes per second.
  double measure(std::size_t bytes, std::uint64_t count, bool latency) {
    const Order order{++run_, bytes, count, latency};
    if (write(to_, &order, sizeof order) != sizeof order) fail("pipe");
    const auto start = Clock::now();
    if (latency) {
      end_->ping_pong(run_, bytes, count, false);
    } else {
      end_->stream(run_, bytes, count);
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const auto times = static_cast<double>(count);
    return latency ? seconds / times / 2 * 1e6 : static_cast<double>(bytes) * times / seconds / 1e9;
  }

 private:
  pid_t child_ = 0;
  int to_ = -1, from_ = -1;
  std::uint64_t run_ = 0;
  std::unique_ptr<End> end_;
};

struct Reference {
  double value = 0;  ///< 0: ucx_perftest is not there.
  std::string command;
};

/// The same measurement by ucx_perftest, active messages with error handling as we use them.
Reference perftest(const std::string& tls, std::size_t bytes, std::uint64_t count, bool latency) {
  static int port = 20000 + getpid() % 20000;
  ++port;
  const bool shared = tls == kShared;
  std::ostringstream environment, command;
  environment << "UCX_TLS=" << tls << " UCX_NET_DEVICES=lo"
              << (shared ? " UCX_MM_ERROR_HANDLING=y" : "");
  command << "ucx_perftest -t " << (latency ? "ucp_am_lat" : "ucp_am_bw") << " -s " << bytes
          << " -n " << count << " -w 20 -e -f" << (latency ? "" : " -O 8");
  const auto prefix = environment.str() + " timeout 60 ";
  const auto server = prefix + "ucx_perftest -e -p " + std::to_string(port) + " >/dev/null 2>&1 &";
  if (std::system(server.c_str()) != 0) return {};
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto client =
      prefix + command.str() + " -p " + std::to_string(port) + " localhost 2>/dev/null";
  FILE* pipe = popen(client.c_str(), "r");
  std::string text;
  for (int c; pipe != nullptr && (c = fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  if (pipe != nullptr) pclose(pipe);
  // The last line: iterations, median, average, overall time; for bandwidth then average and
  // overall MiB/s.
  while (text.ends_with('\n')) text.pop_back();
  std::istringstream line(text.substr(text.rfind('\n') + 1));
  const std::vector<double> columns{std::istream_iterator<double>(line), {}};
  const std::size_t column = latency ? 3 : 5;
  if (columns.size() <= column) return {0, environment.str() + " " + command.str()};
  const double value = latency ? columns[column] : columns[column] * 1048576 / 1e9;
  return {value, environment.str() + " " + command.str()};
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure(const std::string& tls, const Settings& settings) {
  Pair pair(tls, settings.spin_us);
  for (const bool latency : {false, true}) {
    for (const auto bytes : kSizes) {
      const auto count = messages_of(bytes, latency);
      std::vector<double> ours, theirs;
      std::string command;
      for (int round = 0; round < settings.rounds; ++round) {
        ours.push_back(pair.measure(bytes, count, latency));
        auto peer = perftest(tls, bytes, count, latency);
        command = peer.command;
        if (peer.value > 0) theirs.push_back(peer.value);
      }
      std::cout << "{\"measure\": \"transport " << (latency ? "latency" : "bandwidth") << ", "
                << (tls == kShared ? "shared memory" : "TCP") << "\", \"size\": \"" << (bytes >> 10)
                << " KiB\", \"value\": " << median(ours) << ", \"unit\": \""
                << (latency ? "us" : "GB/s") << "\", \"better\": \""
                << (latency ? "lower" : "higher") << "\", \"bound\": ";
      if (theirs.empty()) {
        std::cout << "null";
      } else {
        std::cout << median(theirs);
      }
      std::cout << ", \"command\": \"transport_bench --spin " << settings.spin_us << " beside "
                << command << "\"}" << std::endl;
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  if (words.size() == 3 && words[0] == "--serve") return serve(words[1], std::stoi(words[2]));
  Settings settings;
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
    if (words[i] == "--spin") settings.spin_us = std::stoi(words[i + 1]);
    if (words[i] == "--rounds") settings.rounds = std::max(1, std::stoi(words[i + 1]));
  }
  for (const auto* tls : {kShared, kTcp}) measure(tls, settings);
  return 0;
}
