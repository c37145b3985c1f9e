#include "tests/transport/backends.hpp"

#include <stdexcept>

#include "transport/inproc/hub.hpp"

namespace troupe::transport::testing {

const std::vector<Backend>& all_backends() {
  static const std::vector<Backend> backends{
      {"inproc", "", false},      {"ucx", "posix,sysv,self,tcp", false},
      {"ucx", "self,tcp", false}, {"ucx", "posix,sysv,self,tcp", true},
      {"ucx", "self,tcp", true},
  };
  return backends;
}

std::string to_string(const Backend& backend) {
  return backend.name + (backend.tls.empty() ? "" : " over " + backend.tls) +
         (backend.processes ? ", processes" : ", threads");
}

TransportOptions options_of(const Backend& backend, Peer self, std::shared_ptr<InprocHub> hub) {
  TransportOptions options;
  options.self = self;
  options.hub = std::move(hub);
  options.receives_max = Bytes{std::int64_t{64} << 20};
  options.unexpected_max = Bytes{std::int64_t{4} << 20};
  if (!backend.tls.empty()) options.ucx.tls = backend.tls;
  options.ucx.net_devices = "lo";
  return options;
}

Nodes::Nodes(const Backend& backend, int count)
    : backend_(backend), hub_(std::make_shared<InprocHub>()) {
  for (int self = 0; self < count; ++self) nodes_.push_back(make(self));
}

std::unique_ptr<TestNode> Nodes::make(Peer self) {
  const auto options = options_of(backend_, self, hub_);
  if (backend_.processes) return make_process_node(backend_.name, options);
  auto transport = create_transport(backend_.name, options);
  if (!transport) throw std::runtime_error(to_string(transport.error()));
  return make_local_node(std::move(transport).value());
}

void Nodes::connect(int a, int b) {
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    const auto outcome = (*this)[from].connect(to, (*this)[to].address());
    if (!outcome.ok) throw std::runtime_error(outcome.message);
  }
}

void Nodes::connect_all() {
  for (int a = 0; a < size(); ++a) {
    for (int b = a + 1; b < size(); ++b) connect(a, b);
  }
}

void Nodes::restart(int index) { nodes_[static_cast<std::size_t>(index)] = make(index); }

}  // namespace troupe::transport::testing
