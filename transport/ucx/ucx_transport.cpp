// The backend `ucx`, seen from other threads: turns calls into commands for the messenger.

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/failures.hpp"
#include "transport/process_number.hpp"
#include "transport/ucx/factory.hpp"
#include "transport/ucx/host_checks.hpp"
#include "transport/ucx/memory_kinds.hpp"
#include "transport/ucx/messenger.hpp"
#include "transport/ucx/resources.hpp"
#include "transport/ucx/transport_lists.hpp"

namespace troupe::transport {
namespace {

class UcxTransport final : public Transport {
 public:
  UcxTransport(const TransportOptions& options, UcxWorker worker, UcxContext shared_memory,
               UcxAddress address, bool takes_cuda)
      : self_(options.self),
        takes_cuda_(takes_cuda),
        address_(std::move(address)),
        takes_shared_memory_(shared_memory != nullptr),
        worker_(std::make_unique<UcxWorker>(std::move(worker))),
        messenger_(
            std::make_unique<Messenger>(options, *worker_, std::move(shared_memory), address_)),
        loop_(std::make_shared<EventLoop>(*messenger_, worker_->event_fd(), options.ucx.spin)) {
    run([this] { messenger_->set_loop(loop_.get()); });
  }

  ~UcxTransport() override {
    loop_->stop([this] { messenger_->shut_down(); });
    worker_.reset();  // Before the messenger: UCX may still hold requests of it.
  }

  Peer self() const override { return self_; }
  std::vector<std::byte> address() const override { return encode(address_); }

  std::string remark_on(std::span<const std::byte> one,
                        std::span<const std::byte> other) const override {
    const auto a = decode_ucx_address(-1, one, address_.ucx_major, address_.ucx_minor);
    const auto b = decode_ucx_address(-1, other, address_.ucx_major, address_.ucx_minor);
    if (!takes_shared_memory_ || !a || !b) return {};
    switch (neighbours(a.value().identity, b.value().identity)) {
      case Neighbours::with_own_process_ids:
        return "on one machine, but with process ids of their own: they exchange rows over the "
               "network, since shared memory needs one namespace of process ids (docker: "
               "--pid=host)";
      case Neighbours::with_networks_apart:
        return "on one machine, but in network namespaces of their own: they exchange rows over "
               "the network, since shared memory wakes its reader in one network namespace only "
               "(docker: --network=host)";
      case Neighbours::yes:
      case Neighbours::on_two_machines: break;
    }
    return {};
  }

  bool takes(MemoryKind kind) const override {
    return kind == MemoryKind::host || (kind == MemoryKind::cuda && takes_cuda_);
  }

  void prepare_thread(std::function<void()> call) override { loop_->post(std::move(call)); }

  Status connect(Peer peer, std::span<const std::byte> bytes) override {
    auto address = decode_ucx_address(peer, bytes, address_.ucx_major, address_.ucx_minor);
    if (!address) return std::move(address).error();
    if (peer == self_) return Done{};
    Status status = Done{};
    run([&] { status = messenger_->connect(peer, address.value()); });
    return status;
  }

  Operation send(Peer peer, const Tag& tag, ConstBuffer data) override {
    const auto completion = Completion::pending();
    return start(completion, [this, peer, tag, data = std::move(data), completion]() mutable {
      messenger_->send(peer, tag, std::move(data), completion);
    });
  }

  Operation receive(Peer peer, const Tag& tag, MutableBuffer data) override {
    // The operation may outlive the transport; the loop knows whether it still runs.
    const auto completion = Completion::pending([this, loop = std::weak_ptr(loop_), peer,
                                                 tag](const Completion& withdrawn) {
      if (const auto alive = loop.lock()) {
        alive->post([this, peer, tag, withdrawn] { messenger_->withdraw(peer, tag, withdrawn); });
      }
    });
    return start(completion, [this, peer, tag, data = std::move(data), completion]() mutable {
      messenger_->receive(peer, tag, std::move(data), completion);
    });
  }

  void disconnect(Peer peer, Error why) override {
    run([&] { messenger_->disconnect(peer, why); });
  }

  void drop_older_than(EpochNumber epoch) override {
    run([&] { messenger_->drop_older_than(epoch); });
  }

  void on_peer_failure(PeerFailureHandler handler) override {
    run([&] { messenger_->set_failure_handler(std::move(handler)); });
  }

 private:
  template <class Command>
  Operation start(const Completion& completion, Command command) {
    if (!loop_->post(std::move(command))) return Operation(shutting_down());
    return completion.operation();
  }

  /// Runs a command and waits for it, so that its effect is there when the call returns.
  void run(const std::function<void()>& command) {
    if (loop_->is_own_thread()) return command();
    std::promise<void> done;
    if (loop_->post([&] {
          command();
          done.set_value();
        })) {
      done.get_future().wait();
    }
  }

  const Peer self_;
  const bool takes_cuda_;
  const UcxAddress address_;
  const bool takes_shared_memory_;
  // Destroyed from the last to the first; but see the destructor.
  std::unique_ptr<UcxWorker> worker_;
  std::unique_ptr<Messenger> messenger_;
  std::shared_ptr<EventLoop> loop_;
};

Status check(const UcxOptions& options) {
  if (options.keepalive.count() <= 0 || options.keepalive.count() > 1000) {
    return Error{Errc::invalid_argument,
                 "keepalive is " + std::to_string(options.keepalive.count()) +
                     " ms; 1 to 1000 lets a vanished peer be noticed in time",
                 "", ""};
  }
  if (options.connect_timeout.count() <= 0) {
    return Error{Errc::invalid_argument, "connect_timeout must be above 0 ms", "", ""};
  }
  if (options.spin.count() < 0) {
    return Error{Errc::invalid_argument, "spin must be 0 us or more", "", ""};
  }
  return Done{};
}

/// Null when the options name no shared memory.
Result<UcxContext> start_shared_memory(const UcxOptions& options, const std::string& tls,
                                       bool with_cuda) {
  if (tls.empty()) return UcxContext();
  if (tls == "posix") {
    if (auto status = check_shared_memory(); !status) return std::move(status).error();
  }
  const std::string all = with_cuda ? tls + "," + kCudaTransport : tls;
  return start_ucx({all, "all", options.keepalive, true});
}

}  // namespace

Result<std::unique_ptr<Transport>> create_ucx(const TransportOptions& options) {
  if (auto status = check(options.ucx); !status) return std::move(status).error();
  const auto lists = divide_transports(options.ucx.tls);
  if (!lists) return lists.error();
  const auto descriptors = open_descriptors();
  auto network =
      start_ucx({lists.value().network, options.ucx.net_devices, options.ucx.keepalive, false});
  if (!network) return std::move(network).error();
  auto of_network = memory_of(network.value());
  if (!of_network) return std::move(of_network).error();
  std::vector<ucp_context_attr_t> memory{of_network.value()};
  const bool network_takes_cuda = all_take(memory, MemoryKind::cuda);
  auto shared_memory =
      start_shared_memory(options.ucx, lists.value().shared, /*with_cuda=*/network_takes_cuda);
  if (!shared_memory) return std::move(shared_memory).error();
  if (shared_memory.value() != nullptr) {
    auto of_channels = memory_of(shared_memory.value());
    if (!of_channels) return std::move(of_channels).error();
    memory.push_back(of_channels.value());
  }
  const bool takes_cuda = all_take(memory, MemoryKind::cuda);
  auto worker = UcxWorker::create(std::move(network).value());
  if (!worker) return std::move(worker).error();
  auto worker_address = worker.value().address();
  if (!worker_address) return std::move(worker_address).error();
  close_new_descriptors_on_exec(descriptors);

  UcxAddress address;
  address.process = make_process_number();
  address.token = make_access_token();
  unsigned release = 0;
  ucp_get_version(&address.ucx_major, &address.ucx_minor, &release);
  address.identity = own_identity();
  address.worker = std::move(worker_address).value();
  return std::unique_ptr<Transport>(new UcxTransport(options, std::move(worker).value(),
                                                     std::move(shared_memory).value(),
                                                     std::move(address), takes_cuda));
}

}  // namespace troupe::transport
