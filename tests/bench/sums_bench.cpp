// One gradient summed over 2, 4 and 8 holders: as the engine does (`GroupSums`), beside a star, in
// which all send to one that adds and sends back, as the engine once did.
//
//   sums_bench [ROUNDS]
//
// Each holder is a thread with a transport of its own; ways and rounds take turns, medians are
// printed. Bytes through a node are those it sends or those it receives, whichever are more. Both
// ways move 2 (n - 1) times the gradient in all, through one memory here: between machines, where
// links are the bound, time goes with the bytes of the busiest node.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <thread>

#include "engine/execution/group_sums.hpp"
#include "tests/bench/report.hpp"
#include "transport/registry.hpp"

using namespace troupe;
using namespace troupe::engine;
using transport::TagKind;

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

[[noreturn]] void fail(const std::string& what) {
  std::cerr << "sums_bench: " << what << "\n";
  std::exit(1);
}

template <class T>
T need(Result<T> result) {
  if (!result.ok()) fail(to_string(result.error()));
  return std::move(result).value();
}

/// A device on a node of its own that holds the group; used by one thread at a time.
class Holder {
 public:
  Holder(std::int32_t place, const ParallelPlan& plan, const std::string& tls, at::Tensor own)
      : place_(place),
        own_(std::move(own)),
        gradient_(at::empty_like(own_)),
        transport_(need(transport::create_transport("ucx", options(place, tls)))),
        mailbox_(*transport_, *host_, 1, [this] { wake(); }),
        sums_(plan, DeviceId{place}, [this](auto, auto) -> at::Tensor& { return gradient_; }) {}

  void connect(const std::vector<std::unique_ptr<Holder>>& all) {
    for (const auto& other : all)
      if (const auto done = transport_->connect(other->place_, other->transport_->address());
          !done.ok())
        fail(to_string(done.error()));
  }

  void begin(std::int64_t step) {
    gradient_.copy_(own_);
    sent_ = received_ = 0;
    mailbox_.begin(step, Bytes{std::int64_t{1} << 40});
  }

  /// The chunks that `plan_sum` says: what the executor does with the group's actions.
  void sum_by_chunks() {
    Action reduce, receive;
    reduce.kind = ActionKind::reduce;
    receive.kind = ActionKind::reduce_receive;
    reduce.group = receive.group = GroupId{0};
    const auto others = sums_.arrivals_of(reduce, at::kFloat);
    const auto sums = sums_.arrivals_of(receive, at::kFloat);
    post(others);
    post(sums);
    give(sums_.send(GroupId{0}));
    give(sums_.reduce(GroupId{0}, take(others)));
    sums_.receive(GroupId{0}, take(sums));
    finish();
  }

  /// All to the first of `count` holders, which adds in their order and sends the sum back.
  void sum_by_star(std::int32_t count) {
    const auto from = [&](TagKind kind, std::int32_t holder) {
      return Arrival{{kind, static_cast<std::uint64_t>(place_ + holder)},
                     holder,
                     false,
                     {gradient_.numel()},
                     at::kFloat};
    };
    std::vector<Arrival> arrivals;
    std::vector<Parcel> parcels;
    const bool is_first = place_ == 0;
    for (std::int32_t h = 1; h < count; ++h) {
      if (is_first) arrivals.push_back(from(TagKind::reduce, h));
      if (is_first) parcels.push_back({from(TagKind::reduced, h).key, h, gradient_});
    }
    if (!is_first) arrivals = {from(TagKind::reduced, 0)};
    post(arrivals);
    if (!is_first) give({{from(TagKind::reduce, 0).key, 0, gradient_}});
    for (at::Tensor& came : take(arrivals)) {
      if (is_first) {
        gradient_.add_(came);
      } else {
        gradient_.copy_(came);
      }
    }
    give(parcels);
    finish();
  }

  std::int64_t bytes_through() const { return std::max(sent_, received_); }
  const at::Tensor& sum() const { return gradient_; }

 private:
  static transport::TransportOptions options(std::int32_t place, const std::string& tls) {
    transport::TransportOptions options;
    options.self = place;
    options.ucx.tls = tls;
    options.ucx.net_devices = "lo";
    return options;
  }

  void wake() {
    ++events_;
    events_.notify_one();
  }

  void post(const std::vector<Arrival>& arrivals) {
    if (!need(mailbox_.post(arrivals))) fail("a receive was refused");
    received_ += bytes_to_post(arrivals).count();
  }

  void give(const std::vector<Parcel>& parcels) {
    for (const Parcel& parcel : parcels) {
      sent_ += static_cast<std::int64_t>(parcel.tensor.nbytes());
      mailbox_.send(parcel);
    }
  }

  std::vector<at::Tensor> take(const std::vector<Arrival>& arrivals) {
    wait_until([&] { return need(mailbox_.arrived(arrivals)); });
    std::vector<at::Tensor> taken;
    for (const Arrival& arrival : arrivals) taken.push_back(*mailbox_.take(arrival.key));
    return taken;
  }

  void finish() {
    wait_until([&] {
      if (const auto ok = mailbox_.check(); !ok.ok()) fail(to_string(ok.error()));
      return mailbox_.all_sent();
    });
  }

  template <class Condition>
  void wait_until(Condition condition) {
    for (;;) {
      const int seen = events_.load();
      if (condition()) return;
      events_.wait(seen);
    }
  }

  std::int32_t place_;
  at::Tensor own_, gradient_;
  std::atomic<int> events_ = 0;
  std::int64_t sent_ = 0, received_ = 0;
  std::unique_ptr<Device> host_ = make_device({});
  std::unique_ptr<transport::Transport> transport_;
  TensorMailbox mailbox_;
  GroupSums sums_;
};

/// A replica of one stage on each node; all hold the group.
ParallelPlan plan_of(std::int32_t count, std::int64_t elements) {
  ParallelPlan plan;
  ParameterGroup group{"layer", false, elements, {}, {}};
  for (std::int32_t d = 0; d < count; ++d) {
    plan.devices.push_back({NodeId{d}, 0});
    group.holders.push_back(DeviceId{d});
    group.uses.push_back({StageId{plan.stages.size()}, {ModuleId{0}, 0}});
    plan.stages.push_back({ReplicaId{d}, {}, {DeviceId{d}}});
  }
  plan.groups = {group};
  return plan;
}

struct Figures {
  std::vector<double> ms;
  std::int64_t busiest_bytes = 0;
};

/// Sums once, all holders beginning together, and says how long until the last one has the sum.
void run(std::vector<std::unique_ptr<Holder>>& holders, std::int64_t step, bool by_chunks,
         bool counts, Figures& figures) {
  const auto count = static_cast<std::int32_t>(holders.size());
  for (auto& holder : holders) holder->begin(step);
  std::barrier start(count + 1);
  std::vector<std::thread> threads;
  for (auto& holder : holders)
    threads.emplace_back([&, holder = holder.get()] {
      start.arrive_and_wait();
      if (by_chunks) {
        holder->sum_by_chunks();
      } else {
        holder->sum_by_star(count);
      }
    });
  start.arrive_and_wait();
  const auto begin = std::chrono::steady_clock::now();
  for (auto& thread : threads) thread.join();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  if (counts) figures.ms.push_back(took.count());
  for (auto& holder : holders)
    figures.busiest_bytes = std::max(figures.busiest_bytes, holder->bytes_through());
}

void measure(std::int32_t count, std::int64_t mib, const std::string& way, const std::string& tls,
             int rounds) {
  const std::int64_t elements = mib * kMiB / 4;
  const ParallelPlan plan = plan_of(count, elements);
  auto random = at::make_generator<at::CPUGeneratorImpl>(7);
  at::Tensor expected;
  std::vector<std::unique_ptr<Holder>> holders;
  for (std::int32_t d = 0; d < count; ++d) {
    const at::Tensor own = at::randn({elements}, random, at::kFloat);
    expected = d == 0 ? own.clone() : expected.add_(own);
    holders.push_back(std::make_unique<Holder>(d, plan, tls, own));
  }
  for (auto& holder : holders) holder->connect(holders);
  Figures chunks, star;
  for (int round = 0; round <= rounds; ++round)
    for (const bool by_chunks : {round % 2 == 0, round % 2 != 0}) {
      run(holders, 2 * round + by_chunks, by_chunks, round > 0, by_chunks ? chunks : star);
      for (auto& holder : holders)
        if (!at::equal(holder->sum(), expected)) fail("a holder has another sum");
    }
  const std::string size = std::to_string(mib) + " MiB", of = std::to_string(count) + " holders";
  const double star_ms = bench::median(star.ms);
  bench::report("sum over " + of + ", " + way + "; bound: as a star", bench::median(chunks.ms),
                "ms", {{"size", size}, {"better", "lower"}, {"bound", star_ms}});
  const double bound = 2.0 * (count - 1) / count * static_cast<double>(mib);
  for (const auto& [name, figures] : {std::pair("the busiest of ", &chunks), {"a star of ", &star}})
    bench::report("bytes through " + (name + of) + ", " + way,
                  static_cast<double>(figures->busiest_bytes) / static_cast<double>(kMiB), "MiB",
                  {{"size", size}, {"better", "lower"}, {"bound", bound}});
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  if (rounds < 1) fail("usage: sums_bench [ROUNDS]");
  at::set_num_threads(1);
  for (const auto& [way, tls] :
       {std::pair("shared memory", "posix,sysv,self,tcp"), {"TCP", "self,tcp"}})
    for (const std::int64_t mib : {4, 64})
      for (const std::int32_t count : {2, 4, 8}) measure(count, mib, way, tls, rounds);
}
