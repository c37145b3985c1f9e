// The helper program: a rank of NCCL groups in a process of its own, which does what its standard
// input says, a line in and a line out.
//
// usage: nccl_node SELF
//
//   hello | address | connect PEER ADDRESS | disconnect PEER | script TEXT... | lose
//   open GROUP GENERATION LIMIT_MS ATTEMPT_MS MAY_SHRINK RANK MEMBER...
//     the group of this number of a generation, out of the one before
//   step SUMS ROWS SEED COUNT BYTES LIMIT_MS
//     a sum in one group, and at the same time rows in another: both digests
//   warm LIMIT_MS GROUP...
//     begins the warm-ups of these groups in this order, waits for all of them, and hears of the
//     other ranks how each went
//   split GROUP COLOR SEED COUNT LIMIT_MS OPENING_MS
//     a sum in a part of the group, which is let go of then: its digest; COLOR -1: `ok none`
//   state: live communicators, as soon as they are the groups' own; how often NCCL was misused and
//     the first way
//
// Answers: `ok ...` or `failed CODE MESSAGE`; nodes that were lost end whatever is under way.

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "tests/transport/nccl/fake_device.hpp"
#include "tests/transport/node_protocol.hpp"
#include "transport/nccl/nccl_group.hpp"

namespace troupe::transport::testing {
namespace {

std::string to_answer(const Status& status) {
  if (status.ok()) return "ok";
  return "failed " + std::string(to_string(status.error().code)) + " " + status.error().message;
}

class Node {
 public:
  explicit Node(Peer self) {
    TransportOptions options;
    options.self = self;
    options.ucx.tls = "self,tcp";
    options.ucx.net_devices = "lo";
    transport_ = std::move(create_transport("ucx", options)).value();
    transport_->on_peer_failure([this](Peer peer, const Error& why, bool /*was_up*/) {
      const std::lock_guard lock(mutex_);
      for (const auto& [number, group] : groups_)
        if (group) group->lose(peer, why);
    });
    context_ = std::make_shared<NcclContext>(nccl_.library(), short_limits());
    device_ = "gpu " + std::to_string(self);
  }

  std::string answer(std::istringstream& line) {
    std::string call;
    line >> call;
    if (call == "hello") return "hello";
    if (call == "address") return to_hex(transport_->address());
    if (call == "connect") return connect(line);
    if (call == "open") return open(line);
    if (call == "step") return step(line);
    if (call == "warm") return warm(line);
    if (call == "split") return split(line);
    if (call == "state") {
      return "ok " + std::to_string(live_soon()) + " " + std::to_string(nccl_.misuses()) + " " +
             nccl_.first_misuse();
    }
    if (call == "script") {
      std::string text;
      std::getline(line, text);
      return nccl_.script(text), "ok";
    }
    int number = 0;
    line >> number;
    if (call == "disconnect") {
      transport_->disconnect(number, {Errc::cancelled, "the test disconnects", "", ""});
      return "ok";
    }
    return "failed internal unknown call " + call;
  }

 private:
  std::string connect(std::istringstream& line) {
    Peer peer = -1;
    std::string address;
    line >> peer >> address;
    return to_answer(transport_->connect(peer, from_hex(address)));
  }

  /// The stream of a group's work, one for all its generations.
  const std::shared_ptr<NcclStream>& stream_of(std::uint32_t number) {
    auto& stream = streams_[number];
    if (!stream) stream = nccl_.stream(device_);
    return stream;
  }

  /// Null: there is none, or it could not be opened.
  NcclGroup* find(std::uint32_t number) const {
    const auto found = groups_.find(number);
    return found == groups_.end() ? nullptr : found->second.get();
  }

  std::string open(std::istringstream& line) {
    NcclGroupOptions options;
    int limit_ms = 0, attempt_ms = 0;
    line >> options.group_id >> options.generation >> limit_ms >> attempt_ms >>
        options.may_shrink >> options.rank;
    for (Peer member = 0; line >> member;) options.members.push_back(member);
    options.name = "group " + std::to_string(options.group_id);
    options.attempt = std::chrono::milliseconds(attempt_ms);
    const auto deadline = within(std::chrono::milliseconds(limit_ms));
    const auto number = options.group_id;
    std::unique_ptr<NcclGroup> old;
    {
      const std::lock_guard lock(mutex_);
      old = std::move(groups_[number]);
    }
    auto made =
        old ? NcclGroup::rebuild(std::move(old), options.members, options.rank, options.generation,
                                 deadline)
            : NcclGroup::create(*transport_, context_, stream_of(number), options, deadline);
    if (!made) return to_answer(made.error());
    const std::lock_guard lock(mutex_);
    groups_[number] = std::move(made).value();
    return "ok";
  }

  /// The sum is under way while the rows are moved, to the next rank and from the one before: the
  /// two groups have streams of their own, and one thread that calls NCCL.
  std::string step(std::istringstream& line) {
    std::uint32_t sum_number = 0, row_number = 0;
    std::uint64_t seed = 0;
    std::size_t count = 0, bytes = 0;
    int limit_ms = 0;
    line >> sum_number >> row_number >> seed >> count >> bytes >> limit_ms;
    auto* const sums = find(sum_number);
    auto* const rows = find(row_number);
    if (sums == nullptr || rows == nullptr) return "failed not_found there is no group";
    const auto values = std::make_shared<std::vector<std::byte>>(
        rank_values(seed, sums->rank(), count, Scalar::fp32));
    const auto own = rows->rank(), ranks = rows->size();
    const auto sent = std::make_shared<std::vector<std::byte>>(
        pattern(seed + static_cast<std::uint64_t>(own), bytes));
    const auto received = std::make_shared<std::vector<std::byte>>(bytes);
    const NcclRowsTo to[] = {{(own + 1) % ranks, {sent->data(), bytes, sent}}};
    const NcclRowsFrom from[] = {{(own + ranks - 1) % ranks, {received->data(), bytes, received}}};
    const auto limit = within(std::chrono::milliseconds(limit_ms));
    const auto sum =
        sums->begin_all_reduce({values->data(), values->size(), values}, Scalar::fp32, limit);
    const auto moved = rows->exchange_rows(to, from, limit);
    // The watchdogs end them; the bound here is for the watchdogs. Neither is left under way.
    const auto summed = sum.wait(limit + std::chrono::seconds(5));
    const auto exchanged = moved.wait(limit + std::chrono::seconds(5));
    if (!summed) return to_answer(summed);
    if (!exchanged) return to_answer(exchanged);
    return "ok " + std::to_string(digest_of(values->data(), values->size())) + " " +
           std::to_string(digest_of(received->data(), bytes));
  }

  std::string warm(std::istringstream& line) const {
    int limit_ms = 0;
    line >> limit_ms;
    const auto limit = within(std::chrono::milliseconds(limit_ms));
    std::map<std::uint32_t, Operation> begun;  // Compared in one order at all ranks.
    for (std::uint32_t number = 0; line >> number;) {
      auto* const group = find(number);
      if (group == nullptr) return "failed not_found there is no group";
      begun.emplace(number, group->begin_warm_up({9000}, limit));
    }
    Status all = Done{};
    for (const auto& [number, one] : begun) {
      // The watchdog ends it; the bound here is for the watchdog.
      const auto own = one.wait(limit + std::chrono::seconds(5));
      const auto status = find(number)->compare(own, limit + std::chrono::seconds(10));
      if (all && !status) all = status;
    }
    return to_answer(all);
  }

  std::string split(std::istringstream& line) {
    std::uint32_t number = 0;
    std::int32_t color = -1;
    int opening_ms = 0;
    CollectiveCall call;
    call.kind = "all_reduce";
    call.scalar = Scalar::fp32;
    line >> number >> color >> call.seed >> call.count >> call.deadline_ms >> opening_ms;
    auto* const whole = find(number);
    if (whole == nullptr) return "failed not_found there is no group";
    const auto part =
        whole->split(color < 0 ? std::nullopt : std::optional(color), number + kPartsFrom, "part",
                     stream_of(number + kPartsFrom), within(std::chrono::milliseconds(opening_ms)));
    if (!part) return to_answer(part.error());
    if (part.value() == nullptr) return "ok none";
    call.rank = part.value()->rank();
    const auto outcome = run_collective(*part.value(), call);
    if (outcome.ok) return "ok " + std::to_string(outcome.digest);
    return "failed " + std::string(to_string(outcome.code)) + " " + outcome.message;
  }

  /// A part that was split off is given up in the background.
  int live_soon() {
    const auto deadline = within(std::chrono::seconds(5));
    while (nccl_.live() != static_cast<int>(groups_.size()) &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return nccl_.live();
  }

  static constexpr std::uint32_t kPartsFrom = 100;  ///< Numbers of parts, above those of groups.

  FakeNccl nccl_;
  std::string device_;
  std::mutex mutex_;  ///< Of `groups_`, which the transport's thread reads.
  std::map<std::uint32_t, std::unique_ptr<NcclGroup>> groups_;  ///< By number.
  std::shared_ptr<NcclContext> context_;
  std::map<std::uint32_t, std::shared_ptr<NcclStream>> streams_;  ///< By the group's number.
  std::unique_ptr<Transport> transport_;  // Declared last: its thread calls the groups.
};

int run(Peer self) {
  // Answers go where standard output went; what libraries print there goes to standard error.
  const int answers = dup(STDOUT_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  Node node(self);
  for (std::string text; std::getline(std::cin, text);) {
    std::istringstream line(text);
    auto answer = node.answer(line);
    std::erase(answer, '\n');
    answer += '\n';
    if (write(answers, answer.data(), answer.size()) != static_cast<ssize_t>(answer.size())) break;
  }
  _exit(0);  // Calls that the script lets hang have threads that nobody can join.
}

}  // namespace
}  // namespace troupe::transport::testing

int main(int count, char** arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // No helper outlives a test program that crashed.
  if (count != 2) return 2;
  return troupe::transport::testing::run(std::atoi(arguments[1]));
}
